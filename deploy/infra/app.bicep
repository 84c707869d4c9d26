// The function app on the Flex Consumption plan. Its package lies in a container of the storage account.

@description('Region.')
param location string

@description('Tags of everything.')
param tags object

@description('Name of the plan.')
param planName string

@description('Name of the function app, part of its host name.')
param appName string

@description('Resource id of the identity that the app acts as.')
param identityId string

@description('Client id of that identity.')
param identityClientId string

@description('Name of the storage account.')
param accountName string

@description('Container that the app is deployed from.')
param packageContainerName string

@description('Name of the Application Insights component.')
param insightsName string

@description('TASKGRAPH_PREFIX.')
param prefix string

@description('TASKGRAPH_QUEUES.')
param queues string

@description('TASKGRAPH_SWEEP_SECONDS.')
param sweepSeconds int

@description('TASKGRAPH_HTTP.')
param http string

@description('TASKGRAPH_ENTRA_TENANT.')
param entraTenant string

@description('TASKGRAPH_ENTRA_AUDIENCE.')
param entraAudience string

@description('Python of the app.')
param pythonVersion string

@description('Memory of an instance, in MB.')
param instanceMemoryMB int

@description('How many instances the app may grow to.')
param maximumInstanceCount int

resource account 'Microsoft.Storage/storageAccounts@2024-01-01' existing = {
  name: accountName
}

resource insights 'Microsoft.Insights/components@2020-02-02' existing = {
  name: insightsName
}

resource plan 'Microsoft.Web/serverfarms@2024-04-01' = {
  name: planName
  location: location
  tags: tags
  kind: 'functionapp'
  sku: {
    name: 'FC1'
    tier: 'FlexConsumption'
  }
  properties: {
    reserved: true // Linux
  }
}

resource site 'Microsoft.Web/sites@2024-04-01' = {
  name: appName
  location: location
  tags: union(tags, { 'azd-service-name': 'functions' })
  kind: 'functionapp,linux'
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identityId}': {}
    }
  }
  properties: {
    serverFarmId: plan.id
    httpsOnly: true
    functionAppConfig: {
      deployment: {
        storage: {
          type: 'blobContainer'
          value: '${account.properties.primaryEndpoints.blob}${packageContainerName}'
          authentication: {
            type: 'UserAssignedIdentity'
            userAssignedIdentityResourceId: identityId
          }
        }
      }
      runtime: {
        name: 'python'
        version: pythonVersion
      }
      scaleAndConcurrency: {
        instanceMemoryMB: instanceMemoryMB
        maximumInstanceCount: maximumInstanceCount
      }
    }
    siteConfig: {
      minTlsVersion: '1.2'
      appSettings: [
        // The host's own connection, which is where graphs live too: the same names that the host itself reads.
        {
          name: 'AzureWebJobsStorage__blobServiceUri'
          value: account.properties.primaryEndpoints.blob
        }
        {
          name: 'AzureWebJobsStorage__queueServiceUri'
          value: account.properties.primaryEndpoints.queue
        }
        {
          name: 'AzureWebJobsStorage__tableServiceUri'
          value: account.properties.primaryEndpoints.table
        }
        {
          name: 'AzureWebJobsStorage__credential'
          value: 'managedidentity'
        }
        {
          name: 'AzureWebJobsStorage__clientId'
          value: identityClientId
        }
        {
          name: 'TASKGRAPH_PREFIX'
          value: prefix
        }
        {
          name: 'TASKGRAPH_QUEUES'
          value: queues
        }
        {
          name: 'TASKGRAPH_SWEEP_SECONDS'
          value: string(sweepSeconds)
        }
        {
          name: 'TASKGRAPH_HTTP'
          value: http
        }
        {
          name: 'TASKGRAPH_ENTRA_TENANT'
          value: entraTenant
        }
        {
          name: 'TASKGRAPH_ENTRA_AUDIENCE'
          value: entraAudience
        }
        {
          name: 'APPLICATIONINSIGHTS_CONNECTION_STRING'
          value: insights.properties.ConnectionString
        }
        {
          name: 'APPLICATIONINSIGHTS_AUTHENTICATION_STRING'
          value: 'Authorization=AAD;ClientId=${identityClientId}'
        }
      ]
    }
  }
}

@description('Name of the function app.')
output appName string = site.name
