// Everything that taskgraph needs in Azure: a resource group with a storage account, a function app on the Flex
// Consumption plan, what watches it, and who may do what. No key is used: identities and roles alone.

targetScope = 'subscription'

@minLength(1)
@maxLength(64)
@description('Name of this environment: part of the name of the resource group, and of all tags.')
param environmentName string

@minLength(1)
@description('Region of everything. It must offer the Flex Consumption plan: az functionapp list-flexconsumption-locations.')
@metadata({
  azd: {
    type: 'location'
  }
})
param location string

@description('Object id of a person or program that submits graphs and looks at them from elsewhere: may read and write rows, messages and logs. Empty: none.')
param principalId string = ''

@allowed(['User', 'Group', 'ServicePrincipal'])
@description('What principalId is.')
param principalType string = 'User'

@minLength(3)
@maxLength(16)
@description('Name of the table, and beginning of the names of queues: TASKGRAPH_PREFIX. Lower-case letters and digits, a letter first.')
param prefix string = 'taskgraph'

@allowed(['one', 'per-operation'])
@description('One queue of events for all kinds, or one for each kind: TASKGRAPH_QUEUES. On this plan every queue has instances of its own; one is the warmer and the cheaper.')
param queues string = 'one'

@minLength(1)
@description('Targets that tasks go to. Each has a queue of work, which workers of this deployment may take from.')
param targets array = ['default']

@allowed([5, 10, 15, 20, 30, 60, 120, 180, 240, 300, 360, 600, 720, 900, 1200, 1800])
@description('Seconds between two rounds of the sweep: TASKGRAPH_SWEEP_SECONDS. Each round is a call that is paid for.')
param sweepSeconds int = 60

@allowed(['off', 'tokens', 'reader', 'submitter', 'operator', 'admin'])
@description('Whether the app answers HTTP requests: not, for tokens alone, or with a function key, which has this role: TASKGRAPH_HTTP.')
param http string = 'off'

@description('Tenant whose tokens of Entra ID open the HTTP API: TASKGRAPH_ENTRA_TENANT. Empty for none.')
param entraTenant string = ''

@description('For which app such tokens must be: TASKGRAPH_ENTRA_AUDIENCE.')
param entraAudience string = ''

@description('Let the account be used with its keys. Off, as no part of taskgraph needs them, but one: a link that opens one graph for a person without an identity here (taskgraph grant) is signed with a key, and cannot be made then. On, everyone with a key may do everything.')
param allowSharedKeyAccess bool = false

@allowed(['Standard_LRS', 'Standard_ZRS', 'Standard_GRS'])
@description('How often and where the account keeps what it is given.')
param storageSku string = 'Standard_LRS'

@allowed(['3.11', '3.12', '3.13'])
@description('Python of the function app: the one that it is packaged for. The tests run 3.11.')
param pythonVersion string = '3.11'

@allowed([2048, 4096])
@description('Memory of an instance of the function app, in MB.')
param instanceMemoryMB int = 2048

@minValue(1)
@maxValue(1000)
@description('How many instances the function app may grow to. Handlers of one graph write one partition, so that many do not help it: they meet. The service has long taken nothing below 40.')
param maximumInstanceCount int = 40

@minValue(30)
@maxValue(730)
@description('Days for which telemetry is kept.')
param retentionDays int = 30

@description('Image of a worker. With one, workers run as jobs of Azure Container Apps while messages wait. Empty: workers run elsewhere.')
param workerImage string = ''

@description('Registry that the identity of workers may pull the image from, such as mine.azurecr.io; give it AcrPull there. Empty: anyone may pull it.')
param workerRegistry string = ''

@minValue(1)
@maxValue(1000)
@description('Workers of one target at a time.')
param workersMax int = 10

@minValue(60)
@maxValue(604800)
@description('Seconds after which a worker is ended, whatever it does: more than the longest task takes.')
param workerSecondsMax int = 86400

@description('Cores of a worker, which are its slots.')
param workerCores string = '1.0'

@description('Memory of a worker: two gibibytes for each core.')
param workerMemory string = '2Gi'

var token = toLower(uniqueString(subscription().id, environmentName, location))
var tags = {
  'azd-env-name': environmentName
}

resource group 'Microsoft.Resources/resourceGroups@2024-03-01' = {
  name: 'rg-${environmentName}'
  location: location
  tags: tags
}

module identities 'identities.bicep' = {
  name: 'identities'
  scope: group
  params: {
    location: location
    tags: tags
    appIdentityName: 'id-app-${token}'
    workerIdentityName: 'id-worker-${token}'
  }
}

module storage 'storage.bicep' = {
  name: 'storage'
  scope: group
  params: {
    location: location
    tags: tags
    accountName: 'st${token}'
    sku: storageSku
    allowSharedKeyAccess: allowSharedKeyAccess
    prefix: prefix
    queues: queues
    targets: targets
  }
}

module monitoring 'monitoring.bicep' = {
  name: 'monitoring'
  scope: group
  params: {
    location: location
    tags: tags
    workspaceName: 'log-${token}'
    insightsName: 'appi-${token}'
    retentionDays: retentionDays
  }
}

module access 'access.bicep' = {
  name: 'access'
  scope: group
  params: {
    accountName: storage.outputs.accountName
    tableName: storage.outputs.tableName
    logContainerName: storage.outputs.logContainerName
    eventQueueNames: storage.outputs.eventQueueNames
    workQueueNames: storage.outputs.workQueueNames
    insightsName: monitoring.outputs.insightsName
    appPrincipalId: identities.outputs.appPrincipalId
    workerPrincipalId: identities.outputs.workerPrincipalId
    principalId: principalId
    principalType: principalType
  }
}

module app 'app.bicep' = {
  name: 'app'
  scope: group
  dependsOn: [
    access // an app that starts before it may read its queues fails until it is started again
  ]
  params: {
    location: location
    tags: tags
    planName: 'plan-${token}'
    appName: 'func-${token}'
    identityId: identities.outputs.appIdentityId
    identityClientId: identities.outputs.appClientId
    accountName: storage.outputs.accountName
    packageContainerName: storage.outputs.packageContainerName
    insightsName: monitoring.outputs.insightsName
    prefix: prefix
    queues: queues
    sweepSeconds: sweepSeconds
    http: http
    entraTenant: entraTenant
    entraAudience: entraAudience
    pythonVersion: pythonVersion
    instanceMemoryMB: instanceMemoryMB
    maximumInstanceCount: maximumInstanceCount
  }
}

module workers 'workers.bicep' = if (!empty(workerImage)) {
  name: 'workers'
  scope: group
  dependsOn: [
    access
  ]
  params: {
    location: location
    tags: tags
    environmentName: 'cae-${token}'
    jobPrefix: 'worker'
    image: workerImage
    registry: workerRegistry
    identityId: identities.outputs.workerIdentityId
    identityClientId: identities.outputs.workerClientId
    accountName: storage.outputs.accountName
    tableEndpoint: storage.outputs.tableEndpoint
    prefix: prefix
    queues: queues
    targets: targets
    workersMax: workersMax
    secondsMax: workerSecondsMax
    cores: workerCores
    memory: workerMemory
  }
}

// azd keeps each of these in the environment under its name: azd -C deploy env get-values

@description('The resource group.')
output AZURE_RESOURCE_GROUP string = group.name

@description('The region.')
output AZURE_LOCATION string = location

@description('The function app.')
output AZURE_FUNCTION_APP string = app.outputs.appName

@description('The storage account.')
output AZURE_STORAGE_ACCOUNT string = storage.outputs.accountName

@description('What to export for the command line and for workers, with the same name.')
output TASKGRAPH_STORE string = storage.outputs.tableEndpoint

@description('What to export for the command line and for workers, with the same name.')
output TASKGRAPH_PREFIX string = prefix

@description('What to export for the command line and for workers, with the same name: all that send events must agree.')
output TASKGRAPH_QUEUES string = queues

@description('Resource id of the identity to give to machines that run workers.')
output TASKGRAPH_WORKER_IDENTITY string = identities.outputs.workerIdentityId

@description('What to export as AZURE_CLIENT_ID on machines that run workers.')
output TASKGRAPH_WORKER_CLIENT_ID string = identities.outputs.workerClientId

@description('What to export on machines that run workers, if they are to be seen in Application Insights.')
output APPLICATIONINSIGHTS_CONNECTION_STRING string = monitoring.outputs.connectionString
