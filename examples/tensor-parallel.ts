// Tensor parallel training: every rank has a part of every layer.
//
//   npx tsrun --nproc auto examples/tensor-parallel.ts
//   npx tsrun --nproc auto examples/tensor-parallel.ts --layers 8 --width 256
//
// The same network is trained three times:
//
//   whole     not parallel, for comparison: every rank computes the whole network
//   gathered  as in CS336's lecture: each rank has some columns of every weight, and the outputs of each
//             layer are gathered from all ranks before the next one. The backward pass, which the
//             lecture leaves as homework, has a reduce-scatter for each gather: every rank uses all
//             outputs, so the gradients of the outputs have to be summed.
//   paired    as in Megatron-LM: the first layer of a pair is split by columns, the second by rows. The
//             activations between them need no communication. A pair needs one sum in the forward
//             pass and one in the backward pass.
//
// All three compute the same, but they add numbers up in another order, and each sum is rounded. What must
// agree is therefore compared at the first step, where all start from the same parameters: there the
// losses agree to the last digits of float32, and so do those of the second step, which depend on all
// gradients of the first. Later the difference grows by itself, as it does between two programs of one
// process: each step starts from slightly other parameters, and a ReLU that is just above zero in one
// may be just below zero in the other.
//
// Read: docs/tensor-parallel.md. Exercises: examples/exercises.md#tensor-parallel

import { formatTable } from '@tsrun/core'
import * as training from '@tsrun/training'
import { count, endWith, integer, jobFlags, positive, readFlags } from './lib/flags.ts'
import { startJob } from './lib/job.ts'
import { printResult } from './lib/output.ts'
import { checkDivides } from './lib/stages.ts'
import { describeUtilisation, pollUtilisation } from './lib/utilisation.ts'

const { columnParallel, rowParallel, tf } = training
const flags = readFlags({
  steps: count(50),
  batch: count(128),
  layers: count(4),
  width: count(512),
  seed: integer(0),
  lr: positive(0.1),
  ...jobFlags(),
})
const { layers, width } = flags
if (layers < 3) endWith(`--layers ${layers} leaves no pair to split; expected at least 3`)
checkDivides('width', width)

const group = await startJob(flags)
const { rank, size } = group

// The ten classes may not divide by the number of ranks, so the last layer is not split. It is the same
// on all ranks, so each has the whole gradient of its input.
const beforeLast = layers - 2
const planOf = (kindOf: (layer: number) => training.ParallelPlan[string]): training.ParallelPlan =>
  Object.fromEntries(
    Array.from({ length: layers - 1 }, (_, layer) => [`layers.${layer}`, kindOf(layer)]),
  )
const gathered = planOf((layer) =>
  columnParallel({ gather: layer === beforeLast ? 'replicated' : 'partial' }),
)
const paired = planOf((layer) => {
  if (layer % 2 === 1) return rowParallel()
  return layer === beforeLast ? columnParallel({ gather: 'replicated' }) : columnParallel()
})

interface Outcome {
  readonly losses: number[]
  readonly milliseconds: number
  readonly share: number
  readonly collectives: number
}

async function train(plan: training.ParallelPlan | undefined): Promise<Outcome> {
  const { seed, batch, steps } = flags
  const whole = training.shardedMLP({ layers, hidden: width, seed }).build()
  const full = whole.parameters.reduce((sum, { value }) => sum + value.size, 0)
  const model = plan === undefined ? whole : training.parallelize(whole, plan, group)
  const held = model.parameters.reduce((sum, { value }) => sum + value.size, 0)
  const optimizer = new training.SGD({ learningRate: flags.lr })
  const one = tf.scalar(1)
  const losses: number[] = []
  await group.barrier()
  const begin = performance.now()
  const first = group.barrier().sequence
  for (const { inputs, labels } of training.batches(training.mnist({ split: 'train' }), {
    batch,
    seed,
  })) {
    const [x, y] = [inputs(), labels()]
    // It awaits the messages, where recordModule would block. So it also runs on webgpu.
    const outputs = await training.recordSegments(model, x, { needsInputGradient: false })
    const loss = training.recordLoss(training.crossEntropy, outputs.value, y)
    const dy = loss.backward(one, () => undefined)!
    const gradients = new Map<string, training.Tensor>()
    await outputs.backward(dy, training.sumInto(gradients))
    optimizer.step(model.parameters, gradients)
    losses.push((await loss.value.data())[0]!)
    outputs.dispose()
    loss.dispose()
    tf.dispose([x, y, dy])
    if (losses.length === steps) break
  }
  const milliseconds = (performance.now() - begin) / losses.length
  const end = group.barrier()
  await end
  const collectives = (end.sequence - first - 1) / losses.length
  training.disposeModule(model)
  one.dispose()
  return { losses, milliseconds, share: held / full, collectives }
}

const poll = pollUtilisation()
const outcomes = {
  whole: await train(undefined),
  gathered: await train(gathered),
  paired: await train(paired),
}
const utilisation = await group.allGatherObject(await poll.stop())
/** The largest difference of a loss among the first `steps` steps, or among all. */
const errorOf = ({ losses }: Outcome, steps?: number): number => {
  const differences = losses.map((loss, i) => Math.abs(loss - outcomes.whole.losses[i]!))
  return Math.max(...differences.slice(0, steps))
}
if (rank === 0) {
  const rows = Object.entries(outcomes).map(([name, outcome]) => [
    name,
    `${(outcome.share * 100).toFixed(0)} %`,
    String(outcome.collectives),
    outcome.milliseconds.toFixed(1),
    outcome.losses.at(-1)!.toFixed(4),
    errorOf(outcome, 2).toExponential(1),
    errorOf(outcome).toExponential(1),
  ])
  const headers = ['network', 'parameters', 'collectives', 'ms per step', 'last loss']
  headers.push('difference in 2 steps', `in ${outcomes.whole.losses.length}`)
  console.log(formatTable([headers, ...rows], 'right').join('\n'))
  console.log(describeUtilisation(utilisation))
  for (const [name, outcome] of Object.entries(outcomes)) {
    if (errorOf(outcome, 2) < 1e-5) continue
    throw new Error(`"${name}" does not train like the whole network from the first step on.`)
  }
  console.log('The first two steps agree up to rounding. Later steps drift apart by it.')
  printResult({
    ranks: size,
    loss: outcomes.whole.losses.at(-1)!,
    gatheredFirst: errorOf(outcomes.gathered, 2),
    pairedFirst: errorOf(outcomes.paired, 2),
    gatheredError: errorOf(outcomes.gathered),
    pairedError: errorOf(outcomes.paired),
    gatheredCollectives: outcomes.gathered.collectives,
    pairedCollectives: outcomes.paired.collectives,
    wholeMs: outcomes.whole.milliseconds,
    gatheredMs: outcomes.gathered.milliseconds,
    pairedMs: outcomes.paired.milliseconds,
  })
}
await group.destroy()
