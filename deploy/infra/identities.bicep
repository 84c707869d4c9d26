// Who acts: the function app, and machines that run workers. Identities have no secret that could leak.

@description('Region.')
param location string

@description('Tags of everything.')
param tags object

@description('Name of the identity of the function app.')
param appIdentityName string

@description('Name of the identity of workers.')
param workerIdentityName string

resource appIdentity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: appIdentityName
  location: location
  tags: tags
}

resource workerIdentity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: workerIdentityName
  location: location
  tags: tags
}

@description('Resource id of the identity of the function app.')
output appIdentityId string = appIdentity.id

@description('What roles are given to.')
output appPrincipalId string = appIdentity.properties.principalId

@description('What the app names when it asks for a token.')
output appClientId string = appIdentity.properties.clientId

@description('Resource id of the identity of workers.')
output workerIdentityId string = workerIdentity.id

@description('What roles are given to.')
output workerPrincipalId string = workerIdentity.properties.principalId

@description('What a worker names when it asks for a token: AZURE_CLIENT_ID.')
output workerClientId string = workerIdentity.properties.clientId
