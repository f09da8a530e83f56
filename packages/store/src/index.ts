export { connectStore, type ConnectedStore, type StoreConnectOptions } from './client.ts'
export {
  addressOfInterface,
  awaitListenAddress,
  findListenAddress,
  hostIdentity,
  isLocalhost,
  isLoopback,
  localAddressTowards,
  nameEndpoint,
  ownAddresses,
  reachableAddress,
  systemNames,
  type ListenAddress,
  type Names,
} from './addresses.ts'
export { memoryStore } from './memory-store.ts'
export { VALUE_LIMIT } from './protocol.ts'
export { storeTlsOf, type StoreTls } from './secure-sockets.ts'
export {
  startStoreServer,
  type StoreServer,
  type StoreServerOptions,
  type StoreServerState,
} from './server.ts'
export {
  prefixStore,
  type Store,
  type StoreCallOptions,
  type StoreEvent,
  type StoreSetOptions,
} from './store.ts'
