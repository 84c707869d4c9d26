// What watches: Application Insights over a workspace of its own. It takes telemetry from identities alone.
// There are no diagnostic settings of the storage account: a line for each of its operations costs more than the
// operation, and taskgraph counts its own.

@description('Region.')
param location string

@description('Tags of everything.')
param tags object

@description('Name of the Log Analytics workspace.')
param workspaceName string

@description('Name of the Application Insights component.')
param insightsName string

@description('Days for which telemetry is kept.')
param retentionDays int

resource workspace 'Microsoft.OperationalInsights/workspaces@2023-09-01' = {
  name: workspaceName
  location: location
  tags: tags
  properties: {
    retentionInDays: retentionDays
    sku: {
      name: 'PerGB2018'
    }
  }
}

resource insights 'Microsoft.Insights/components@2020-02-02' = {
  name: insightsName
  location: location
  tags: tags
  kind: 'web'
  properties: {
    Application_Type: 'web'
    DisableLocalAuth: true
    WorkspaceResourceId: workspace.id
  }
}

@description('Name of the Application Insights component.')
output insightsName string = insights.name

@description('Where telemetry is sent. No secret: without a role it opens nothing, as keys are off.')
output connectionString string = insights.properties.ConnectionString
