import { monotonicNow, refuseUnknown, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { recordModule } from '../../autograd/record.ts'
import { takeScalar } from '../../backend/host-memory.ts'
import { tf, type Tensor } from '../../backend/tfjs.ts'
import { summedCrossEntropy } from '../../nn/cross-entropy.ts'
import { recordLoss, type Loss } from '../../nn/loss.ts'
import { disposeModule, type Module } from '../../model/module.ts'
import { cutBatch, type Microbatches } from './microbatches.ts'
import { checkModel, type Batch, type PipelineModel } from './model.ts'

export interface MeasureCostsOptions {
  /** As for the pipeline: the costs are those of one of them. Default 8. */
  readonly microbatches?: number
  /** Measured passes of each layer, after one to warm up; default 5. */
  readonly repeats?: number
  /** Counts to the last layer; default `summedCrossEntropy`. */
  readonly loss?: Loss
  /**
   * The groups along the other axes of a mesh, for example `[mesh.dp, mesh.tp]`: what a layer costs is
   * then the most that it costs on any of them, so that all cut the model alike. Default: none.
   */
  readonly peers?: readonly ProcessGroup[]
}

const KNOWN = Object.keys({
  microbatches: true,
  repeats: true,
  loss: true,
  peers: true,
} satisfies Record<keyof MeasureCostsOptions, true>)

/**
 * Measures what each layer of a model costs: the median time of a forward and a backward of one
 * micro-batch, in milliseconds. Rank 0 builds one layer after the other and tells the rest of the
 * group, so that all cut the model alike. All ranks call it.
 *
 * @param group - that of the pipeline: on a mesh its axis, and not the world; the others are `peers`
 *
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
  checkModel(model)
  refuseUnknown(options, KNOWN)
  const { microbatches = 8, repeats = 5, loss = summedCrossEntropy, peers = [] } = options
  for (const [name, value] of Object.entries({ microbatches, repeats })) {
    if (Number.isSafeInteger(value) && value >= 1) continue
    throw tsrError('ERR_TSR_ARGUMENT', { name, value, expected: 'a whole number from 1' })
  }
  const own = group.rank === 0 ? await measureOwn(model, batch, microbatches, repeats, loss) : []
  const told = await group.broadcastObject(own, 0, { label: 'costs of layers' })
  const costs = Float64Array.from(told)
  for (const axis of peers) await axis.allReduce(costs, { op: 'max', label: 'costs of layers' })
  return [...costs]
}

async function measureOwn(
  model: PipelineModel,
  batch: Batch,
  count: number,
  repeats: number,
  loss: Loss,
): Promise<number[]> {
  const parts = cutBatch(batch, count)
  const costs: number[] = []
  let input = parts.inputs(0)
  try {
    for (let layer = 0; layer < model.layers; layer++) {
      const module = model.slice(layer, layer + 1)
      const isLast = layer === model.layers - 1
      try {
        const run = {
          module,
          input,
          loss: isLast ? loss : undefined,
          needsInputGradient: layer > 0,
        }
        const times: number[] = []
        for (let pass = -1; pass < repeats; pass++) {
          const time = await timePass(run, parts)
          if (pass >= 0) times.push(time)
        }
        costs.push(times.sort((a, b) => a - b)[times.length >> 1]!)
        const output = tf.tidy(() => module.forward(input))
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

interface Run {
  readonly module: Module
  readonly input: Tensor
  readonly loss: Loss | undefined
  readonly needsInputGradient: boolean
}

/** Milliseconds until a gradient is there: on some backends only the fetching of a value waits. */
async function timePass(run: Run, parts: Microbatches): Promise<number> {
  const { module, input, needsInputGradient } = run
  const labels = run.loss === undefined ? undefined : parts.labels(0)
  const start = monotonicNow()
  const recording = recordModule(module, input, { needsInputGradient })
  const { value } = recording
  const loss = labels === undefined ? undefined : recordLoss(run.loss!, value, labels)
  const one = tf.scalar(1)
  const dy = loss?.backward(one, () => undefined) ?? tf.onesLike(value)
  const gradients: Tensor[] = []
  const inputGradient = recording.backward(dy, (_, gradient) => gradients.push(gradient))
  if (inputGradient !== undefined) gradients.push(inputGradient)
  const sums = tf.tidy(() => tf.addN([tf.scalar(0), ...gradients.slice(-1).map((g) => tf.sum(g))]))
  await takeScalar(sums)
  const time = monotonicNow() - start
  tf.dispose([dy, one, ...gradients, ...(labels === undefined ? [] : [labels])])
  loss?.dispose()
  recording.dispose()
  return time
}
