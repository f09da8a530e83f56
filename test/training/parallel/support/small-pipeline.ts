import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import { pipeline, shardedMLP, type PipelineOptions } from '@tsrun/training'
import { exampleBatch } from './reference.ts'

const INPUTS = 8
const CLASSES = 3
export const HIDDEN = 10
export const model = shardedMLP({ layers: 4, inputs: INPUTS, hidden: HIDDEN, outputs: CLASSES })
export const examples = (size: number) => ({ size, ...exampleBatch(0, size, INPUTS, CLASSES) })

/** What each rank of a world makes of its part of a small pipeline. */
export async function onRanks<T>(
  size: number,
  options: PipelineOptions,
  use: (pipe: ReturnType<typeof pipeline>, group: ProcessGroup) => Promise<T>,
): Promise<T[]> {
  return await runWorld({ size, seed: 3 }, async (group) => {
    const pipe = pipeline(model, group, options)
    const result = await use(pipe, group)
    pipe.dispose()
    return result
  })
}
