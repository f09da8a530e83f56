// Training whose state is sharded over the ranks: ZeRO, or fully sharded data parallel training.
//
//   npx tsrun --nproc 2 examples/fsdp.ts
//   npx tsrun --nproc 2 examples/fsdp.ts --stage 1
//
// With Adam, a data parallel rank holds at least 16 bytes for each parameter: its value, its gradient and
// two moments. Each stage shards more of them: stage 1 the moments, stage 2 the gradients as well, and
// stage 3 the parameters as well. A layer is then gathered only while it computes.
//
// The same GPT is trained both ways on the same batches of Moby Dick. At the end, all parameters must be
// bitwise identical, otherwise the exit code is 1. tensorflow and webgpu may round products of whole
// networks and of single layers differently, and each step of a deep network amplifies that. There a third
// training, data parallel from weights that are rounded differently, shows by how much: no loss may differ
// by more than 10 times what rounding has changed up to its step, otherwise the exit code is 1.
//
// Exercises: examples/exercises.md

import { formatTable } from '@tsrun/core'
import { gpt } from '@tsrun/models'
import * as training from '@tsrun/training'
import { choice, count, endWith, integer, jobFlags, positive, readFlags } from './lib/flags.ts'
import { meshProblem } from './lib/gpt-run.ts'
import { startJob } from './lib/job.ts'
import { drawCurve, grouped, printResult } from './lib/output.ts'
import { Speed } from './lib/speed.ts'
import { describeUtilisation, pollUtilisation } from './lib/utilisation.ts'

const flags = readFlags({
  stage: choice(['1', '2', '3'] as const, '3'),
  steps: count(30),
  batch: count(16),
  block: count(64),
  layers: count(8),
  heads: count(4),
  width: count(64),
  seed: integer(0),
  lr: positive(0.003),
  ...jobFlags(),
})
const stage = Number(flags.stage) as training.ZeroStage

const { batch, block, layers, heads, width, seed, steps } = flags

const group = await startJob(flags)
const backend = training.tf.getBackend()
const { rank, size } = group
const mesh = { dp: size, pp: 1, tp: 1, cp: 1, between: 'replicated' } as const
const problem = meshProblem({ ...flags, ...mesh }, size)
if (problem !== undefined) endWith(problem)
const book = training.mobyDick({ split: 'train' })

/**
 * Trains data parallel, with the state on each rank (`zero` 0) or sharded.
 *
 * @param factor - of the initial weights of the first layer
 */
async function train(zero: 0 | training.ZeroStage, factor = 1) {
  const model = gpt({ layers, heads, width, block, seed }).build()
  const first = model.parameters[0]!
  training.replaceValue(first, training.tf.keep(training.tf.mul(first.value, factor)))
  const layerSizes = model.layers.map(({ parameters }) =>
    parameters.reduce((sum, { value }) => sum + value.size, 0),
  )
  const optimizer = new training.Adam({ learningRate: flags.lr })
  const run = await training.trainer(model, {
    ...{ mesh: group, zero, optimizer, bucketBytes: 2 ** 18, firstBucketBytes: 2 ** 18 },
    // The sum over more than two ranks depends on the order.
    deterministic: true,
  })
  const speed = new Speed()
  const options = { batch, block, seed, share: run.share }
  const { losses } = await run.fit((step) => training.textBatch(book, step, options), {
    steps,
    unit: { tokens: block },
    callbacks: [speed],
  })

  let optimizerBytes = 0
  for (const { values } of (await optimizer.state()).values()) {
    for (const { byteLength } of Object.values(values)) optimizerBytes += byteLength
  }
  const bytes = (run.memory?.peak ?? 0) + optimizerBytes
  // Gathers the whole network, so this comes after the peak of the memory was read.
  const values = await run.gathered(async () => {
    const copies: Float32Array[] = []
    for (const { value } of model.parameters) copies.push((await value.data<'float32'>()).slice())
    return copies
  })
  const { traffic = { collectives: 0, bytes: 0 } } = run
  run.dispose()
  optimizer.dispose()
  const milliseconds = (1000 * batch) / speed.examplesPerSecond
  return { layerSizes, losses, values, bytes, optimizerBytes, traffic, milliseconds }
}

const poll = pollUtilisation()
const replicated = await train(0)
const sharded = await train(stage)
const utilisation = await group.allGatherObject(await poll.stop())
const { bytes, optimizerBytes, layerSizes, losses } = sharded
const parameters = layerSizes.reduce((sum, length) => sum + length, 0)
/** The largest difference of two numbers at the same place; NaN if one is NaN. */
function difference(a: ArrayLike<number>, b: ArrayLike<number>): number {
  return Array.from(a).reduce((most, x, i) => Math.max(most, Math.abs(x - b[i]!)), 0)
}
const largest = Math.max(
  difference(sharded.losses, replicated.losses),
  ...sharded.values.map((values, i) => difference(values, replicated.values[i]!)),
)

const formula = (of: 0 | training.ZeroStage) =>
  training.stateBytes(of, { parameters, ranks: size, gathered: Math.max(...layerSizes) })
const ranks = await group.allGatherObject({ rank, largest, bytes, optimizerBytes })
const most = Math.max(...ranks.map((each) => each.largest))
const isEqual = most === 0
const isClose = isEqual || (await differsByRounding())
if (!isClose) process.exitCode = 1

async function differsByRounding(): Promise<boolean> {
  if (backend !== 'tensorflow' && backend !== 'webgpu') return false
  const rounded = await train(0, 1 + 2 ** -22)
  let allowed = 1e-6
  return replicated.losses.every((loss, step) => {
    allowed = Math.max(allowed, 10 * Math.abs(rounded.losses[step]! - loss))
    return Math.abs(sharded.losses[step]! - loss) <= allowed
  })
}
if (rank === 0) {
  const perNumber = (total: number) => (total / parameters).toFixed(2)
  const rows = ranks.map((each) => [
    `rank ${each.rank}`,
    grouped(each.bytes - each.optimizerBytes),
    grouped(each.optimizerBytes),
    grouped(each.bytes),
    perNumber(each.bytes),
  ])
  const planned = (name: string, of: 0 | training.ZeroStage) => {
    return [name, '', '', grouped(formula(of)), perNumber(formula(of))]
  }
  const headers = ['bytes', 'parameters, gradients', 'optimizer', 'together', 'per parameter']
  const table = [
    ...rows,
    planned(`formula, stage ${stage}`, stage),
    planned('formula, data parallel', 0),
  ]
  const [first, last] = [losses[0]!, losses.at(-1)!]
  console.log(`\n${drawCurve(losses)}\n`)
  console.log(`loss ${first.toFixed(3)} in step 1, ${last.toFixed(3)} in step ${steps}`)
  console.log(`${grouped(parameters)} parameters in ${layers} blocks, stage ${stage}\n`)
  console.log(`${formatTable([headers, ...table], 'right').join('\n')}\n`)
  const { collectives, bytes: sent } = sharded.traffic
  console.log(`${collectives} collectives of ${grouped(sent)} bytes per step`)
  console.log(
    `${replicated.milliseconds.toFixed(0)} ms per step with data parallelism, ` +
      `${sharded.milliseconds.toFixed(0)} ms sharded`,
  )
  console.log(describeUtilisation(utilisation))
  if (isEqual) console.log('the parameters are bitwise identical')
  else {
    const by = `by up to ${most.toExponential(1)}`
    console.log(
      isClose
        ? `all losses are equal up to what rounding leads to: losses and parameters differ ${by}`
        : `the parameters DIFFER ${by}`,
    )
  }
  printResult({
    ranks: size,
    stage,
    equal: isEqual,
    firstLoss: first,
    lastLoss: last,
    bytes: Math.max(...ranks.map((each) => each.bytes)),
    formula: formula(stage),
    dataParallel: formula(0),
    collectives,
    traffic: sent,
  })
}
await group.destroy()
