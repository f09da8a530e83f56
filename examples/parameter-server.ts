// A parameter server beside all-reduce: what does it cost when ranks do not wait for each other?
//
//   npx tsrun --nproc 4 examples/parameter-server.ts [--steps 60] [--batch 64] [--lr 0.1] [--slow 20]
//
// All-reduce: in every step each worker computes the gradient of its share, and all wait for the sum. All
// have the same parameters, and the slowest worker sets the pace.
//
// Parameter server (Dean et al., "DistBelief", 2012): rank 0 has the parameters, the others are workers. A
// worker sends a gradient and gets the newest parameters back. The server receives from *any* worker,
// applies the gradient at once, and answers. Nobody waits for a slow worker. But a gradient belongs to the
// parameters that its worker had, and meanwhile those of others have changed them. How often is the
// staleness of the gradient: with w workers of the same speed w - 1, for a slow one more.
//
// Both spend the same number of gradients, and the last worker is slow: `--slow` milliseconds are added to
// each of its gradients. All-reduce gives the same loss in every run. With the server it depends on who
// comes first.
//
// Read: docs/distributed.md#messages

import { setTimeout } from 'node:timers/promises'
import { formatTable } from '@tsrun/core'
import * as training from '@tsrun/training'
import { count, endWith, integer, jobFlags, positive, readFlags } from './lib/flags.ts'
import { startJob } from './lib/job.ts'
import { percent, printResult } from './lib/output.ts'

const flags = readFlags({
  steps: count(60),
  batch: count(64),
  lr: positive(0.1),
  slow: integer(20),
  seed: integer(0),
  ...jobFlags(),
})
const { steps, batch, seed } = flags

const group = await startJob(flags)
const { rank, size } = group
if (size < 2)
  endWith('A server and a worker are two ranks. Start them with: npx tsrun --nproc 2 ...')

const SERVER = 0
const isServer = rank === SERVER
const workers = size - 1
const sum = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0)
const total = steps * workers

interface Outcome {
  readonly seconds: number
  readonly accuracy: number
  /** Of each gradient. */
  readonly staleness: readonly number[]
  /** The gradients of each worker. */
  readonly shares: readonly number[]
}

/** Each in turn, from the same initial parameters. */
const outcomes = {
  allReduce: await train(withAllReduce),
  server: await train((replica) => (isServer ? serve(replica) : work(replica))),
}
if (rank === 0) report(outcomes.allReduce, outcomes.server)
await group.destroy()

/** The network, and flat arrays with its parameters and gradients, which can be sent. */
interface Replica {
  readonly model: training.Module
  readonly layout: training.FlatLayout
  readonly gradients: Float32Array
  /** Where each parameter's gradient lies in them. */
  readonly parts: ReadonlyMap<string, Float32Array>
  /** The parameters, and a last value: whether the worker continues. */
  readonly parameters: Float32Array
}

type Progress = Pick<Outcome, 'staleness' | 'shares'>

async function train(run: (replica: Replica) => Promise<Progress>): Promise<Outcome> {
  const model = training.shardedMLP({ layers: 4, hidden: 64, seed }).build()
  const layout = training.flatten(model.parameters)
  const gradients = group.alloc('float32', layout.length)
  const parameters = group.alloc('float32', layout.length + 1)
  const parts = new Map(
    Array.from(layout.slots, ([name, { offset, length }]) => {
      return [name, gradients.subarray(offset, offset + length)]
    }),
  )
  await group.barrier()
  const start = performance.now()
  const progress = await run({ model, layout, gradients, parts, parameters })
  await group.barrier()
  const seconds = (performance.now() - start) / 1000
  const accuracy = await group.broadcastObject(judge(model), SERVER)
  group.free(gradients)
  group.free(parameters)
  training.disposeModule(model)
  return { seconds, accuracy, ...progress }
}

/** Rank 0 is a replica without examples, so that both have the same number of workers. */
async function withAllReduce({ model, gradients, parts }: Replica): Promise<Progress> {
  const optimizer = new training.SGD({ learningRate: flags.lr })
  const examples = endless()
  for (let step = 0; step < steps; step++) {
    if (isServer) gradients.fill(0)
    else await backward(model, parts, examples.next().value)
    await group.allReduce(gradients)
    for (let i = 0; i < gradients.length; i++) gradients[i]! /= workers
    optimizer.step(model.parameters, parts)
  }
  return {
    staleness: new Array<number>(total).fill(0),
    shares: new Array<number>(workers).fill(steps),
  }
}

async function serve({ model, layout, gradients, parts, parameters }: Replica): Promise<Progress> {
  // A gradient of one worker is applied alone, so it moves the parameters by its share of a step.
  const optimizer = new training.SGD({ learningRate: flags.lr / workers })
  const sentAt = new Array<number>(size).fill(0)
  const staleness: number[] = []
  const shares = new Array<number>(workers).fill(0)
  let [version, asked] = [0, 0]

  const answer = async (worker: number): Promise<void> => {
    const isMore = asked < total
    if (isMore) asked++
    for (const { name, value } of model.parameters) {
      const { offset, length } = layout.slots.get(name)!
      await training.writeTo(value, parameters.subarray(offset, offset + length))
    }
    parameters[layout.length] = isMore ? 1 : 0
    sentAt[worker] = version
    await group.send(parameters, worker)
  }

  for (let worker = 1; worker < size; worker++) await answer(worker)
  while (version < total) {
    const worker = await group.recv(gradients, 'any')
    staleness.push(version - sentAt[worker]!)
    shares[worker - 1]! += 1
    optimizer.step(model.parameters, parts)
    version += 1
    await answer(worker)
  }
  return { staleness, shares }
}

async function work({ model, layout, gradients, parts, parameters }: Replica): Promise<Progress> {
  const examples = endless()
  for (;;) {
    await group.recv(parameters, SERVER)
    if (parameters[layout.length] === 0) return { staleness: [], shares: [] }
    for (const parameter of model.parameters) {
      const { offset, length, shape } = layout.slots.get(parameter.name)!
      const values = parameters.subarray(offset, offset + length)
      training.replaceValue(parameter, training.tensorFrom(values, shape))
    }
    await backward(model, parts, examples.next().value)
    await group.send(gradients, SERVER)
  }
}

/** The gradients of some examples, into the flat array. */
async function backward(
  model: training.Module,
  parts: ReadonlyMap<string, Float32Array>,
  { inputs, labels }: training.ExampleBatch,
): Promise<void> {
  const [x, y, one] = [inputs(), labels(), training.tf.scalar(1)]
  const outputs = training.recordModule(model, x, { needsInputGradient: false })
  const loss = training.recordLoss(training.crossEntropy, outputs.value, y)
  const dy = loss.backward(one, () => undefined)!
  const gradients = new Map<string, training.Tensor>()
  outputs.backward(dy, training.sumInto(gradients))
  for (const [name, gradient] of gradients) await training.writeTo(gradient, parts.get(name)!)
  for (const done of [x, y, one, dy, outputs, loss, ...gradients.values()]) done.dispose()
  if (rank === size - 1) await setTimeout(flags.slow)
}

/** Batches of this worker's share of the digits, epoch after epoch. */
function* endless(): Generator<training.ExampleBatch, never> {
  const train = training.mnist({ split: 'train' })
  const share = [Math.max(0, rank - 1), workers] as const
  for (let epoch = 0; ; epoch++) {
    yield* training.batches(train, { batch: batch * workers, seed, epoch, share })
  }
}

/** The share of the test images that are read correctly. */
function judge(model: training.Module): number {
  const test = training.mnist({ split: 'test' })
  let right = 0
  for (const { inputs, labels } of training.batches(test, { batch: 1000, shuffle: false })) {
    const [x, y] = [inputs(), labels()]
    const outputs = model.forward(x)
    right += training.countCorrect(outputs, y)
    training.tf.dispose([x, y, outputs])
  }
  return right / test.size
}

function report(allReduce: Outcome, server: Outcome): void {
  const meanOf = ({ staleness }: Outcome): number => sum(staleness) / staleness.length
  const rows = Object.entries({ 'all-reduce': allReduce, server }).map(([name, outcome]) => [
    name,
    outcome.seconds.toFixed(2),
    percent(outcome.accuracy, 2),
    meanOf(outcome).toFixed(2),
    String(Math.max(...outcome.staleness)),
    outcome.shares.join(' + '),
  ])
  const headers = [
    '',
    'seconds',
    'test accuracy',
    'mean staleness',
    'largest',
    'gradients by worker',
  ]
  console.log(formatTable([headers, ...rows], 'right').join('\n'))
  const late = server.staleness.filter((versions) => versions > workers - 1).length
  console.log(
    `With the server, ${late} of ${total} gradients are staler than the ${workers - 1} of workers that take turns.`,
  )
  printResult({
    ...{ ranks: size, gradients: total },
    ...{ allReduceSeconds: allReduce.seconds, serverSeconds: server.seconds },
    ...{ allReduceAccuracy: allReduce.accuracy, serverAccuracy: server.accuracy },
    ...{ staleness: meanOf(server), largest: Math.max(...server.staleness) },
    ...{ shares: server.shares },
  })
}
