/** What the test bundles: it runs in a page, so its imports lead to no module of Node. */
import { loadWasm, pipeline, runWorld, SGD, shardedMLP, tensorFrom } from '@tsrun/training/browser'
import { trainSmallPipeline } from '../fixtures/launcher/losses.ts'

const world = { size: 2, seed: 1, memory: 32 << 20 }

/** What each rank has after an all-reduce. */
export async function sum(): Promise<number[][]> {
  return await runWorld(world, async (group) => {
    const values = Float32Array.of(group.rank + 1, 10)
    await group.allReduce(values)
    return [...values]
  })
}

/** What each rank sees of an error of the other. */
export async function fail(): Promise<string> {
  try {
    await runWorld({ ...world, timeout: 5000 }, async (group) => {
      await group.allReduce(new Float32Array(2 + group.rank))
    })
    return 'no error'
  } catch (error) {
    return (error as { readonly code: string }).code
  }
}

/** The losses of a pipeline of two stages on wasm in exact mode. */
export async function train(): Promise<number[]> {
  await loadWasm({ math: 'exact' })
  const training = { pipeline, SGD, shardedMLP, tensorFrom }
  const [losses] = await runWorld(world, (group) => trainSmallPipeline(group, training))
  return losses!
}
