// The storage account: the table of graphs, the queues, the logs of runs, and the package of the function app.
// taskgraph makes its table and queues itself where it may. They are made here all the same, so that workers need no
// right to make any, and roles can be given on each.

@description('Region.')
param location string

@description('Tags of everything.')
param tags object

@minLength(3)
@maxLength(24)
@description('Name of the account: lower-case letters and digits, the only one of its kind in the world.')
param accountName string

@description('How often and where the account keeps what it is given.')
param sku string

@description('Whether the account may be used with its keys.')
param allowSharedKeyAccess bool

@description('Name of the table, and beginning of the names of queues.')
param prefix string

@description('one, or per-operation: a queue for each kind of event beside the common one.')
param queues string

@description('Targets that tasks go to.')
param targets array

// generated: queues (by scripts/generate from the types of messages; not edited by hand)
var kinds = ['add-tasks', 'cancel', 'edit', 'hold-back', 'prioritize', 'rerun', 'send-ready', 'set-limit', 'task-completed', 'task-failed']
// end: queues
var ownQueueNames = [for kind in kinds: '${prefix}-${kind}']
// The common one is there always: messages may have been sent before the setting was changed.
var eventQueues = concat(['${prefix}-events'], queues == 'per-operation' ? ownQueueNames : [])
// Each level of priority of a target has a queue; `work` is that of `normal`.
var levels = ['max', 'high', 'work', 'low', 'min']
var workQueues = [for n in range(0, length(levels) * length(targets)): '${prefix}-${levels[n % length(levels)]}-${targets[n / length(levels)]}']
var takenQueues = concat(eventQueues, workQueues)
var poisonQueues = [for name in takenQueues: '${name}-poison']

resource account 'Microsoft.Storage/storageAccounts@2024-01-01' = {
  name: accountName
  location: location
  tags: tags
  kind: 'StorageV2'
  sku: {
    name: sku
  }
  properties: {
    accessTier: 'Hot'
    allowBlobPublicAccess: false
    allowSharedKeyAccess: allowSharedKeyAccess
    defaultToOAuthAuthentication: true
    minimumTlsVersion: 'TLS1_2'
    publicNetworkAccess: 'Enabled' // workers come from anywhere; every request still needs a role
    supportsHttpsTrafficOnly: true
    networkAcls: {
      bypass: 'AzureServices'
      defaultAction: 'Allow'
    }
  }
}

resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2024-01-01' = {
  parent: account
  name: 'default'
}

resource packageContainer 'Microsoft.Storage/storageAccounts/blobServices/containers@2024-01-01' = {
  parent: blobs
  name: 'app-package'
  properties: {
    publicAccess: 'None'
  }
}

resource logContainer 'Microsoft.Storage/storageAccounts/blobServices/containers@2024-01-01' = {
  parent: blobs
  name: 'taskgraph-logs'
  properties: {
    publicAccess: 'None'
  }
}

resource queueService 'Microsoft.Storage/storageAccounts/queueServices@2024-01-01' = {
  parent: account
  name: 'default'
}

resource queue 'Microsoft.Storage/storageAccounts/queueServices/queues@2024-01-01' = [
  for name in concat(takenQueues, poisonQueues): {
    parent: queueService
    name: name
  }
]

resource tableService 'Microsoft.Storage/storageAccounts/tableServices@2024-01-01' = {
  parent: account
  name: 'default'
}

resource table 'Microsoft.Storage/storageAccounts/tableServices/tables@2024-01-01' = {
  parent: tableService
  name: prefix
}

@description('Name of the account.')
output accountName string = account.name

@description('What TASKGRAPH_STORE is to be.')
output tableEndpoint string = account.properties.primaryEndpoints.table

@description('Container that the function app is deployed from.')
output packageContainerName string = packageContainer.name

@description('Container of the logs of runs.')
output logContainerName string = logContainer.name

@description('Name of the table of graphs.')
output tableName string = table.name

@description('Queues that handlers take from, and others send to.')
output eventQueueNames array = eventQueues

@description('Queues that workers take from, of all levels of priority.')
output workQueueNames array = workQueues
