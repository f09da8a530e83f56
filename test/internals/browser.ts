// What runs in a page: test/browser bundles it, so nothing here leads to a module of Node.
export { runWorld } from '../../packages/distributed/src/run-world.ts'
export { tensorFrom } from '../../packages/training/src/backend/host-memory.ts'
export { loadWasm } from '../../packages/training/src/backend/wasm/load.ts'
export { shardedMLP } from '../../packages/training/src/nn/sharded-mlp.ts'
export { SGD } from '../../packages/training/src/optim/sgd.ts'
export { pipeline } from '../../packages/training/src/parallel/pipeline/index.ts'
