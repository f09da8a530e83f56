// What a web page uses: collectives, models and pipelines on the wasm backend, and schedules. All of
// `@tsrun/distributed/browser` is part of it, so that a page loads one engine.
export * from '@tsrun/distributed/browser'
export type { JoinOptions } from '@tsrun/distributed/browser'
export { loadWasm } from './backend/wasm/load.ts'
export { batches, type Batches, type BatchesOptions, type ExampleBatch } from './data/batches.ts'
export { examples } from './data/examples.ts'
export * from './planning.ts'
export * from './portable.ts'
