/** What the test bundles: it runs in a page, so its imports lead to no module of Node. */
import { loadWasm, pipeline, runWorld, SGD, shardedMLP, tensorFrom } from '@tsrun/training/browser'

const world = { size: 2, seed: 1, memory: 32 << 20 }
const ROWS = 8
const PIXELS = 784

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

/** The losses of a pipeline of two stages on wasm. */
export async function train(steps: number): Promise<number[]> {
  await loadWasm()
  const inputs = Float32Array.from({ length: ROWS * PIXELS }, (_, i) => ((i * 7919) % 100) / 100)
  const labels = Int32Array.from({ length: ROWS }, (_, i) => i % 10)
  const losses = await runWorld(world, async (group) => {
    const model = shardedMLP({ layers: 4, hidden: 16 })
    const optimizer = new SGD({ learningRate: 0.1 })
    const pipe = pipeline(model, group, { schedule: '1f1b', microbatches: 2, optimizer })
    const losses: number[] = []
    for (let step = 0; step < steps; step++) {
      const { loss } = await pipe.step({
        size: ROWS,
        inputs: () => tensorFrom(inputs, [ROWS, PIXELS]),
        labels: () => tensorFrom(labels, [ROWS], 'int32'),
      })
      losses.push(loss)
    }
    pipe.dispose()
    return losses
  })
  return losses[1]!
}
