// Training that is stopped and continues from a checkpoint, with another number of ranks or in another
// layout. The losses are those of a training run that was never stopped.
//
//   npx tsrun --nproc 4 examples/continue.ts
//   node --import tsx examples/continue.ts             (the same script in one process)
//
// These commands run both halves in one job: the first half in a pipeline of two stages with replicas,
// the second with tensor parallelism over all ranks. With `--directory`, each part is a separate job of
// any size:
//
//   npx tsrun --nproc 4 examples/continue.ts --directory checkpoints --pp 2 --stop 13
//   npx tsrun --nproc 2 examples/continue.ts --directory checkpoints --tp 2 --stop 21
//   npx tsrun --nproc 3 examples/continue.ts --directory checkpoints
//
// A checkpoint is written every few steps while training continues. At the end, rank 0 trains the same
// network alone, from the first step, and compares the losses.

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { initDeviceMesh, initProcessGroup } from '@tsrun/distributed'
import * as training from '@tsrun/training'
import { count, integer, positive, readFlags, text } from './lib/flags.ts'
import { printResult } from './lib/output.ts'

const flags = readFlags({
  directory: text(''),
  steps: count(30),
  stop: integer(0),
  every: count(5),
  pp: count(1),
  tp: count(1),
  batch: count(120),
  hidden: count(120),
  seed: integer(0),
  lr: positive(0.02),
})
const { batch, every, hidden, lr: learningRate, seed, steps } = flags
const LAYERS = 4

const world = await initProcessGroup()
await training.loadBackend()
const { rank, size } = world
const images = training.mnist({ split: 'train' })

interface Layout {
  readonly pp: number
  readonly tp: number
}

/** The layers [from, to), cut over the ranks of `tp`: alternately by columns and by rows. */
function sharedModel(tp: Parameters<typeof training.parallelize>[2]) {
  const whole = training.shardedMLP({ layers: LAYERS, hidden, seed })
  const style = (layer: number) =>
    layer % 2 === 0 ? training.columnParallel() : training.rowParallel()
  const slice = (from: number, to: number) => {
    const layers = Array.from({ length: to - from }, (_, i) => from + i)
    const plan = Object.fromEntries(layers.map((layer) => [`layers.${layer}`, style(layer)]))
    return tp.size === 1
      ? whole.slice(from, to)
      : training.parallelize(whole.slice(from, to), plan, tp)
  }
  return { layers: LAYERS, slice }
}

/** Trains up to step `until` from the newest checkpoint, or from the start. Returns the losses. */
async function train(directory: string, { pp, tp }: Layout, until: number) {
  const dp = size / pp / tp
  const mesh = await initDeviceMesh({ dp, pp, tp }, world)
  const pipe = training.pipeline(sharedModel(mesh.tp), mesh.pp, { microbatches: 2 * pp })
  const replica = await training.dataParallel(pipe, mesh.dp)
  const optimizer = new training.SGD({ learningRate, momentum: 0.9 })
  const loader = training.dataLoader(images, { batch, seed, share: [mesh.dp.rank, dp] })
  const state = { model: pipe, optimizer }

  let from = 0
  if ((await training.latestCheckpoint(directory, world)) !== undefined) {
    const { step, data } = await training.loadCheckpoint(directory, state, world)
    loader.loadState(data as training.LoaderState)
    from = step
  }
  const losses: number[] = []
  let saved: training.SavedCheckpoint | undefined
  for (const examples of batchesOf(loader, until - from)) {
    const { loss, gradients } = await pipe.forwardBackward(examples)
    for (const parameter of pipe.parameters) {
      replica.onGradient(parameter, gradients.get(parameter.name)!)
    }
    optimizer.step(pipe.parameters, await replica.gradients())
    const mean = Float64Array.of(loss)
    await mesh.dp.allReduce(mean, { op: 'avg' })
    const step = from + losses.push(mean[0]!)
    if (step % every === 0 || step === until) {
      saved = await training.saveCheckpoint(
        directory,
        { ...state, step, data: loader.state(), seeds: { weights: seed } },
        world,
        { keep: 2, background: true },
      )
    }
  }
  await saved?.done
  replica.dispose()
  pipe.dispose()
  if (rank === 0) {
    console.log(
      `dp ${dp} x pp ${pp} x tp ${tp}: steps ${from} to ${until - 1}, ${described(losses)}`,
    )
  }
  return { from, losses }
}

function described(losses: readonly number[]): string {
  if (losses.length === 0) return 'nothing to do'
  return `loss ${losses[0]!.toFixed(4)} to ${losses.at(-1)!.toFixed(4)}`
}

/** The next batches, over as many epochs as necessary. */
function* batchesOf(loader: training.Loader, count: number) {
  for (let left = count; left > 0;) {
    for (const examples of loader) {
      yield examples
      if (--left === 0) break
    }
  }
}

/** The same steps in one process, without a stop. */
function trainAlone(until: number): number[] {
  const model = training.shardedMLP({ layers: LAYERS, hidden, seed }).build()
  const optimizer = new training.SGD({ learningRate, momentum: 0.9 })
  const loader = training.dataLoader(images, { batch, seed })
  const one = training.tf.scalar(1)
  return Array.from(batchesOf(loader, until), ({ inputs, labels }) => {
    const [x, y] = [inputs(), labels()]
    const outputs = training.recordModule(model, x, { needsInputGradient: false })
    const loss = training.recordLoss(training.crossEntropy, outputs.value, y)
    const dy = loss.backward(one, () => undefined)!
    const gradients = new Map<string, training.Tensor>()
    outputs.backward(dy, training.sumInto(gradients))
    optimizer.step(model.parameters, gradients)
    const [value] = loss.value.dataSync()
    outputs.dispose()
    loss.dispose()
    training.tf.dispose([x, y, dy])
    return value!
  })
}

const isOwn = flags.directory === ''
const [own] = await world.allGatherObject(
  isOwn && rank === 0 ? await mkdtemp(join(tmpdir(), 'tsrun-continue-')) : '',
)
const directory = isOwn ? own! : flags.directory
const jobs = isOwn
  ? [
      { pp: size % 2 === 0 ? 2 : 1, tp: 1, until: Math.ceil(steps / 2) },
      { pp: 1, tp: size, until: steps },
    ]
  : [{ pp: flags.pp, tp: flags.tp, until: flags.stop === 0 ? steps : flags.stop }]

const losses = new Map<number, number>()
let from = 0
for (const { until, ...layout } of jobs) {
  const trained = await train(directory, layout, until)
  from = trained.from
  for (const [i, loss] of trained.losses.entries()) losses.set(from + i, loss)
}
if (rank === 0) {
  const alone = trainAlone(jobs.at(-1)!.until)
  const differences = Array.from(losses, ([step, loss]) => Math.abs(loss - alone[step]!))
  const difference = Math.max(0, ...differences)
  console.log(`largest difference from training without a stop: ${difference.toExponential(1)}`)
  printResult({ ranks: size, from, until: jobs.at(-1)!.until, loss: alone.at(-1)!, difference })
}
await world.barrier()
if (isOwn && rank === 0) await rm(directory, { recursive: true })
await world.destroy()
