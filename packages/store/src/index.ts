export type { Store, StoreCallOptions, StoreEvent, StoreSetOptions } from './store.ts'
