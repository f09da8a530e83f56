// Training whose state is sharded over the ranks: ZeRO, or fully sharded data parallel training.
//
//   npx tsrun --nproc 2 examples/fsdp.ts
//   npx tsrun --nproc 4 examples/fsdp.ts --stage 1
//
// With Adam, a data parallel rank holds at least 16 bytes for each parameter: its value, its gradient and
// two moments. Each stage shards more of them: stage 1 the moments, stage 2 the gradients as well, and
// stage 3 the parameters as well. A layer is then gathered only while it computes.
//
// The same network is trained both ways on the same digits. At the end, all parameters must be bitwise
// identical.

import { formatTable } from '@tsrun/core'
import { initProcessGroup } from '@tsrun/distributed'
import * as training from '@tsrun/training'
import { choice, count, endWith, integer, positive, readFlags } from './lib/flags.ts'
import { grouped, printResult } from './lib/output.ts'

const { tf } = training
const flags = readFlags({
  stage: choice(['1', '2', '3'] as const, '3'),
  steps: count(10),
  batch: count(128),
  layers: count(64),
  hidden: count(192),
  seed: integer(0),
  lr: positive(0.001),
})
const stage = Number(flags.stage) as training.ZeroStage

const group = await initProcessGroup()
await training.loadBackend()
const { rank, size } = group
if (flags.batch < size)
  endWith(`--batch ${flags.batch} is smaller than the number of ranks, ${size}`)
const one = tf.scalar(1)

const build = () => {
  const { layers, hidden, seed } = flags
  return training.shardedMLP({ layers, hidden, seed }).build()
}

interface Pass {
  readonly value: training.Tensor
  readonly backward: (outputGradient: training.Tensor) => unknown
  readonly dispose: () => void
}

/** Runs `step` for each batch. Returns the losses of this rank and the milliseconds per step. */
async function train(
  record: (x: training.Tensor) => Pass | Promise<Pass>,
  step: () => Promise<void>,
) {
  const losses: number[] = []
  const train = training.mnist({ split: 'train' })
  const options = { batch: flags.batch, seed: flags.seed, share: [rank, size] } as const
  const begin = performance.now()
  for (const { inputs, labels } of training.batches(train, options)) {
    const [x, y] = [inputs(), labels()]
    const outputs = await record(x)
    const loss = training.recordLoss(training.crossEntropy, outputs.value, y)
    const outputGradient = loss.backward(one, () => undefined)!
    await outputs.backward(outputGradient)
    losses.push(loss.value.dataSync()[0]!)
    outputs.dispose()
    loss.dispose()
    tf.dispose([x, y, outputGradient])
    await step()
    if (losses.length === flags.steps) break
  }
  return { losses, milliseconds: (performance.now() - begin) / losses.length }
}

// The sum over more than two ranks depends on the order.
const options = { deterministic: true, bucketBytes: 2 ** 18, firstBucketBytes: 2 ** 18 }

const whole = build()
const replica = await training.dataParallel(whole, group, options)
const wholeOptimizer = new training.Adam({ learningRate: flags.lr })
const replicated = await train(
  (x) => {
    const recording = training.recordModule(whole, x, { needsInputGradient: false })
    return { ...recording, backward: (dy) => recording.backward(dy, replica.onGradient) }
  },
  async () => {
    wholeOptimizer.step(whole.parameters, await replica.gradients())
  },
)

const model = build()
const layerSizes = model.layers.map(({ parameters }) =>
  parameters.reduce((sum, { value }) => sum + value.size, 0),
)
const parameters = layerSizes.reduce((sum, length) => sum + length, 0)
const sharded = await training.fullyShard(model, group, { ...options, stage })
const optimizer = new training.Adam({ learningRate: flags.lr })
const shared = await train(
  (x) => sharded.record(x),
  async () => {
    await sharded.step(optimizer, await sharded.gradients())
  },
)

let optimizerBytes = 0
for (const { values } of (await optimizer.state()).values()) {
  for (const { byteLength } of Object.values(values)) optimizerBytes += byteLength
}
const bytes = sharded.memory.peak + optimizerBytes

// Gathers the whole network, so this comes after the peak of the memory was read.
await sharded.gather()
const bits = (module: training.Module) =>
  module.parameters.map(({ value }) => Buffer.from(value.dataSync().buffer))
const [wanted, found] = [bits(whole), bits(model)]
const equal =
  wanted.every((values, i) => values.equals(found[i]!)) &&
  replicated.losses.every((loss, i) => loss === shared.losses[i])
sharded.release()

const formula = (of: 0 | training.ZeroStage) =>
  training.stateBytes(of, { parameters, ranks: size, gathered: Math.max(...layerSizes) })
const ranks = await group.allGatherObject({ rank, equal, bytes, optimizerBytes })
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
  console.log(`${grouped(parameters)} parameters in ${flags.layers} layers, stage ${stage}\n`)
  console.log(`${formatTable([headers, ...table], 'right').join('\n')}\n`)
  const { collectives, bytes: sent } = sharded.traffic
  console.log(`${collectives} collectives of ${grouped(sent)} bytes per step`)
  console.log(
    `${replicated.milliseconds.toFixed(0)} ms per step with data parallelism, ` +
      `${shared.milliseconds.toFixed(0)} ms sharded`,
  )
  const isEqual = ranks.every((each) => each.equal)
  console.log(isEqual ? 'the parameters are bitwise identical' : 'the parameters DIFFER')
  printResult({
    ranks: size,
    stage,
    equal: isEqual,
    bytes: Math.max(...ranks.map((each) => each.bytes)),
    formula: formula(stage),
    dataParallel: formula(0),
    collectives,
    traffic: sent,
  })
}
sharded.dispose()
replica.dispose()
await group.destroy()
