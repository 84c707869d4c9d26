// Who may do what, and on which part of the account. Three hands:
//   the function app  the whole account: its host keeps locks and keys in containers that it makes, and handlers make
//                     a queue for every target that a graph names
//   a person          rows, messages and logs of the whole account; cannot give rights to others
//   a worker          the table, its targets' queues, the logs; into the queues of events it may only put. And telemetry
//                     like the app's, so that a trace does not end where work begins

@description('Name of the storage account.')
param accountName string

@description('Name of the table of graphs.')
param tableName string

@description('Container of the logs of runs.')
param logContainerName string

@description('Queues that handlers take from.')
param eventQueueNames array

@description('Queues that workers take from.')
param workQueueNames array

@description('Name of the Application Insights component.')
param insightsName string

@description('Principal of the function app.')
param appPrincipalId string

@description('Principal of workers.')
param workerPrincipalId string

@description('Principal of a person or program elsewhere. Empty: none.')
param principalId string

@description('What principalId is.')
param principalType string

var roles = {
  'Monitoring Metrics Publisher': '3913510d-42f4-4e42-8a64-420c390055eb'
  'Storage Blob Data Contributor': 'ba92f5b4-2d11-453d-a403-e96b0029c9fe'
  'Storage Blob Data Owner': 'b7e6dc6d-f1e8-4753-8033-0f276bb0955b'
  'Storage Queue Data Contributor': '974c5e8b-45b9-4653-ba55-5f855dd0fb88'
  'Storage Queue Data Message Sender': 'c6a89b2d-59bc-44d0-9896-0f6e12d7b80a'
  'Storage Table Data Contributor': '0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3'
}

// Owner, as the host of functions asks for it; the other two make and empty tables and queues.
var appRoles = ['Storage Blob Data Owner', 'Storage Queue Data Contributor', 'Storage Table Data Contributor']
var personRoles = ['Storage Blob Data Contributor', 'Storage Queue Data Contributor', 'Storage Table Data Contributor']

resource account 'Microsoft.Storage/storageAccounts@2024-01-01' existing = {
  name: accountName
}

resource blobs 'Microsoft.Storage/storageAccounts/blobServices@2024-01-01' existing = {
  parent: account
  name: 'default'
}

resource logContainer 'Microsoft.Storage/storageAccounts/blobServices/containers@2024-01-01' existing = {
  parent: blobs
  name: logContainerName
}

resource queueService 'Microsoft.Storage/storageAccounts/queueServices@2024-01-01' existing = {
  parent: account
  name: 'default'
}

resource eventQueue 'Microsoft.Storage/storageAccounts/queueServices/queues@2024-01-01' existing = [
  for name in eventQueueNames: {
    parent: queueService
    name: name
  }
]

resource workQueue 'Microsoft.Storage/storageAccounts/queueServices/queues@2024-01-01' existing = [
  for name in workQueueNames: {
    parent: queueService
    name: name
  }
]

resource workPoisonQueue 'Microsoft.Storage/storageAccounts/queueServices/queues@2024-01-01' existing = [
  for name in workQueueNames: {
    parent: queueService
    name: '${name}-poison'
  }
]

resource tableService 'Microsoft.Storage/storageAccounts/tableServices@2024-01-01' existing = {
  parent: account
  name: 'default'
}

resource table 'Microsoft.Storage/storageAccounts/tableServices/tables@2024-01-01' existing = {
  parent: tableService
  name: tableName
}

resource insights 'Microsoft.Insights/components@2020-02-02' existing = {
  name: insightsName
}

resource appOnAccount 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for role in appRoles: {
    name: guid(account.id, appPrincipalId, role)
    scope: account
    properties: {
      principalId: appPrincipalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles[role])
    }
  }
]

resource appOnInsights 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(insights.id, appPrincipalId, 'Monitoring Metrics Publisher')
  scope: insights
  properties: {
    principalId: appPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      roles['Monitoring Metrics Publisher']
    )
  }
}

resource workerOnInsights 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(insights.id, workerPrincipalId, 'Monitoring Metrics Publisher')
  scope: insights
  properties: {
    principalId: workerPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      roles['Monitoring Metrics Publisher']
    )
  }
}

resource personOnAccount 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for role in personRoles: if (!empty(principalId)) {
    name: guid(account.id, principalId, role)
    scope: account
    properties: {
      principalId: principalId
      principalType: principalType
      roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', roles[role])
    }
  }
]

resource workerOnTable 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(table.id, workerPrincipalId, 'Storage Table Data Contributor')
  scope: table
  properties: {
    principalId: workerPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      roles['Storage Table Data Contributor']
    )
  }
}

resource workerOnLogs 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(logContainer.id, workerPrincipalId, 'Storage Blob Data Contributor')
  scope: logContainer
  properties: {
    principalId: workerPrincipalId
    principalType: 'ServicePrincipal'
    roleDefinitionId: subscriptionResourceId(
      'Microsoft.Authorization/roleDefinitions',
      roles['Storage Blob Data Contributor']
    )
  }
}

// Not Message Processor, which may take and delete, but not lease anew: a worker renews while a task runs.
resource workerOnWork 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (name, index) in workQueueNames: {
    name: guid(workQueue[index].id, workerPrincipalId, 'Storage Queue Data Contributor')
    scope: workQueue[index]
    properties: {
      principalId: workerPrincipalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId(
        'Microsoft.Authorization/roleDefinitions',
        roles['Storage Queue Data Contributor']
      )
    }
  }
]

resource workerOnWorkPoison 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (name, index) in workQueueNames: {
    name: guid(workPoisonQueue[index].id, workerPrincipalId, 'Storage Queue Data Message Sender')
    scope: workPoisonQueue[index]
    properties: {
      principalId: workerPrincipalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId(
        'Microsoft.Authorization/roleDefinitions',
        roles['Storage Queue Data Message Sender']
      )
    }
  }
]

resource workerOnEvents 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (name, index) in eventQueueNames: {
    name: guid(eventQueue[index].id, workerPrincipalId, 'Storage Queue Data Message Sender')
    scope: eventQueue[index]
    properties: {
      principalId: workerPrincipalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId(
        'Microsoft.Authorization/roleDefinitions',
        roles['Storage Queue Data Message Sender']
      )
    }
  }
]
