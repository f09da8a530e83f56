import { anything, callback, count, declareOptions, monotonicNow } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { recordModule, runForward } from '../../autograd/record.ts'
import { takeScalar } from '../../backend/host-memory.ts'
import { disposeModule, type Module } from '../../model/module.ts'
import { summedCrossEntropy } from '../../nn/cross-entropy.ts'
import { recordLoss, type Loss } from '../../nn/loss.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import { checkRecipe, type PipelineModel } from '../recipe.ts'
import { cutBatch, type Batch } from './microbatches.ts'

/** Options of `measureCosts`. */
export interface MeasureCostsOptions {
  /** The number of micro-batches of the planned pipeline; default 8. Costs are per micro-batch. */
  readonly microbatches?: number
  /** The number of measured passes of each layer, after one warm-up pass; default 5. */
  readonly repeats?: number
  /** The loss, whose time is added to the cost of the last layer; default `summedCrossEntropy`. */
  readonly loss?: Loss
  /**
   * The groups of the other mesh axes, for example `[mesh.dp, mesh.tp]`; default: none. The cost of a
   * layer is then the largest cost on any rank of these groups, so that all ranks divide the model in the
   * same way.
   */
  readonly peers?: readonly ProcessGroup[]
}

const readOptions = declareOptions({
  microbatches: count({ from: 1 }).default(8),
  repeats: count({ from: 1 }).default(5),
  loss: callback<Loss>().default(summedCrossEntropy),
  peers: anything<readonly ProcessGroup[]>(),
})

/**
 * Measures the cost of each layer of a model: the median time of a forward and a backward pass of
 * one micro-batch, in milliseconds. Rank 0 builds the layers one at a time, measures them, and
 * broadcasts the costs to the group. All ranks call it.
 *
 * @param group - the group of the pipeline; on a mesh, the group of the `pp` axis. Pass the groups
 *   of the other axes as `peers`
 * @example
 * const costs = await measureCosts(model, group, batch)
 * const pipe = pipeline(model, group, { split: { costs } })
 *
 * @throws ERR_TSR_ARGUMENT
 */
export async function measureCosts(
  model: PipelineModel,
  group: ProcessGroup,
  batch: Batch,
  options: MeasureCostsOptions = {},
): Promise<number[]> {
  checkRecipe(model)
  const { peers = [], ...how } = readOptions(options)
  const own = group.rank === 0 ? await measureOwn(model, batch, how) : []
  const told = await group.broadcastObject(own, 0, { label: 'costs of layers' })
  const costs = Float64Array.from(told)
  for (const axis of peers) await axis.allReduce(costs, { op: 'max', label: 'costs of layers' })
  return [...costs]
}

async function measureOwn(
  model: PipelineModel,
  batch: Batch,
  { microbatches, repeats, loss }: Omit<ReturnType<typeof readOptions>, 'peers'>,
) {
  const parts = cutBatch(batch, microbatches)
  const costs: number[] = []
  let input = parts.inputs(0)
  /**
   * Returns the milliseconds of a forward and a backward pass. Some backends compute asynchronously, so the
   * time ends when the last gradient has been fetched, if there is one.
   */
  const timePass = async (module: Module, isFirst: boolean, isLast: boolean) => {
    const labels = isLast ? parts.labels(0) : undefined
    const start = monotonicNow()
    const recording = recordModule(module, input, { needsInputGradient: !isFirst })
    const { value } = recording
    const recorded = labels && recordLoss(loss, value, labels)
    const one = tf.scalar(1)
    const dy = recorded?.backward(one, () => undefined) ?? tf.onesLike(value)
    const gradients: Tensor[] = []
    const inputGradient = recording.backward(dy, (_, gradient) => gradients.push(gradient))
    if (inputGradient !== undefined) gradients.push(inputGradient)
    const last = gradients.at(-1)
    if (last !== undefined) await takeScalar(tf.tidy(() => tf.sum(last)))
    const time = monotonicNow() - start
    tf.dispose([one, dy, gradients, labels])
    recorded?.dispose()
    recording.dispose()
    return time
  }
  try {
    for (let layer = 0; layer < model.layers; layer++) {
      const module = model.slice(layer, layer + 1)
      try {
        const times: number[] = []
        for (let pass = -1; pass < repeats; pass++) {
          const time = await timePass(module, layer === 0, layer === model.layers - 1)
          if (pass >= 0) times.push(time)
        }
        costs.push(times.sort((a, b) => a - b)[times.length >> 1]!)
        const output = runForward(module, input)
        input.dispose()
        input = output
      } finally {
        disposeModule(module)
      }
    }
    return costs
  } finally {
    input.dispose()
    parts.dispose()
  }
}
