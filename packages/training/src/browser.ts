// The API for web pages: collectives, models and pipelines on the wasm backend, and schedules. It includes
// all of `@tsrun/distributed/browser`, so that a page loads the engine only once.
export * from '@tsrun/distributed/browser'
export type { JoinOptions } from '@tsrun/distributed/browser'
export { loadWasm } from './backend/wasm/load.ts'
export { batches, type Batches, type BatchesOptions, type ExampleBatch } from './data/batches.ts'
export { examples } from './data/examples.ts'
export * from './planning.ts'
export * from './portable.ts'
