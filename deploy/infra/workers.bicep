// Workers that come and go: for each target a job of Azure Container Apps, which starts a worker while messages wait in
// the target's queue. A worker ends when it has found nothing to do for a while, so nothing runs, and nothing is paid
// for, while there is no work.

@description('Region.')
param location string

@description('Tags of everything.')
param tags object

@description('Name of the environment that the jobs run in.')
param environmentName string

@description('Beginning of the names of jobs; the target follows.')
param jobPrefix string

@description('Image of a worker: deploy/container/Containerfile, with the programs that tasks need.')
param image string

@description('Registry that the identity of workers may pull the image from. Empty: anyone may pull it.')
param registry string

@description('Resource id of the identity of workers.')
param identityId string

@description('Client id of the identity of workers.')
param identityClientId string

@description('Name of the storage account.')
param accountName string

@description('Address of the tables of the account.')
param tableEndpoint string

@description('TASKGRAPH_PREFIX.')
param prefix string

@description('TASKGRAPH_QUEUES.')
param queues string

@description('Targets, each with a job of its own.')
param targets array

@description('Workers of one target at a time.')
param workersMax int

@description('Seconds after which a worker is ended, whatever it does.')
param secondsMax int

@description('Cores of a worker.')
param cores string

@description('Memory of a worker.')
param memory string

resource environment 'Microsoft.App/managedEnvironments@2025-07-01' = {
  name: environmentName
  location: location
  tags: tags
  properties: {
    workloadProfiles: [
      {
        name: 'Consumption'
        workloadProfileType: 'Consumption'
      }
    ]
  }
}

resource job 'Microsoft.App/jobs@2025-07-01' = [
  for target in targets: {
    name: '${jobPrefix}-${target}'
    location: location
    tags: tags
    identity: {
      type: 'UserAssigned'
      userAssignedIdentities: {
        '${identityId}': {}
      }
    }
    properties: {
      environmentId: environment.id
      configuration: {
        triggerType: 'Event'
        replicaTimeout: secondsMax
        replicaRetryLimit: 0 // a worker that dies leaves leases that end, and messages that come again
        registries: empty(registry)
          ? []
          : [
              {
                server: registry
                identity: identityId
              }
            ]
        eventTriggerConfig: {
          parallelism: 1
          replicaCompletionCount: 1
          scale: {
            minExecutions: 0
            maxExecutions: workersMax
            pollingInterval: 30
            rules: [
              {
                name: 'work'
                type: 'azure-queue'
                identity: identityId
                metadata: {
                  accountName: accountName
                  queueName: '${prefix}-work-${target}'
                  queueLength: '5' // a message has up to 32 tasks, and those that are being run count too
                }
              }
            ]
          }
        }
      }
      template: {
        containers: [
          {
            name: 'worker'
            image: image
            args: ['worker', '--target', target, '--until-idle', '60']
            resources: {
              cpu: json(cores)
              memory: memory
            }
            env: [
              {
                name: 'TASKGRAPH_STORE'
                value: tableEndpoint
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
                name: 'AZURE_CLIENT_ID'
                value: identityClientId
              }
            ]
          }
        ]
      }
    }
  }
]
