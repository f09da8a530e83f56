// Training that is stopped and continues from a checkpoint, with another number of ranks or in another
// layout. The losses are those of a training run that was never stopped.
//
//   npx tsrun --nproc auto examples/continue.ts
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
//
// Read: docs/checkpoints.md

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { newGroup } from '@tsrun/distributed'
import * as training from '@tsrun/training'
import { count, integer, jobFlags, positive, readFlags, text } from './lib/flags.ts'
import { startJob } from './lib/job.ts'
import { printResult } from './lib/output.ts'
import { checkDivides } from './lib/stages.ts'

const flags = readFlags({
  directory: text(''),
  steps: count(30),
  stop: integer(0),
  every: count(5),
  pp: count(1),
  tp: count(1),
  batch: count(120),
  layers: count(4),
  width: count(120),
  seed: integer(0),
  lr: positive(0.02),
  ...jobFlags(),
})
const { batch, every, layers, width, lr: learningRate, seed, steps } = flags

if (flags.directory === '') checkDivides('width', width)

const world = await startJob(flags)
const { rank, size } = world

/** Trains up to step `until`. */
async function train(
  mesh: NonNullable<training.TrainerOptions['mesh']>,
  until: number,
  options: training.FitOptions,
) {
  const run = await training.trainer(training.shardedMLP({ layers, hidden: width, seed }), {
    mesh,
    // Pairs: the first layer is split by columns, the second by rows. A single last one is not split.
    plan: Object.fromEntries(
      Array.from({ length: layers - (layers % 2) }, (_, layer) => [
        `layers.${layer}`,
        layer % 2 === 0 ? training.columnParallel() : training.rowParallel(),
      ]),
    ),
    optimizer: new training.SGD({ learningRate, momentum: 0.9 }),
  })
  const images = training.mnist({ split: 'train' })
  const { losses, ...end } = await run.fit(images, { batch, seed, steps: until, ...options })
  const { dp, pp, tp } = run.layout
  run.dispose()
  const from = end.steps - losses.length
  const layout = `dp ${dp.size} x pp ${pp.size} x tp ${tp.size}`
  return { from, until: end.steps, losses, layout }
}

function described(losses: readonly number[]): string {
  if (losses.length === 0) return 'nothing to do'
  return `loss ${losses[0]!.toFixed(4)} to ${losses.at(-1)!.toFixed(4)}`
}

const isOwn = flags.directory === ''
const directory = isOwn
  ? await world.broadcastObject(
      rank === 0 ? await mkdtemp(join(tmpdir(), 'tsrun-continue-')) : '',
      0,
    )
  : flags.directory
const jobs = isOwn
  ? [
      { mesh: { dp: -1, pp: size % 2 === 0 ? 2 : 1 }, steps: Math.ceil(steps / 2) },
      { mesh: { tp: size }, steps },
    ]
  : [{ mesh: { dp: -1, pp: flags.pp, tp: flags.tp }, steps: flags.stop || steps }]

const losses = new Map<number, number>()
let [from, until] = [0, 0]
for (const job of jobs) {
  // From the newest checkpoint, or from the start.
  const save = { directory, every, keep: 2 }
  const part = await train(job.mesh, job.steps, { save, resume: 'auto' })
  ;({ from, until } = part)
  for (const [i, loss] of part.losses.entries()) losses.set(from + i, loss)
  if (rank === 0) {
    console.log(`${part.layout}: steps ${from} to ${until - 1}, ${described(part.losses)}`)
  }
}
if (rank === 0) {
  const alone = await train(await newGroup([0]), until, { progress: false })
  const differences = Array.from(losses, ([step, loss]) => Math.abs(loss - alone.losses[step]!))
  const difference = Math.max(0, ...differences)
  console.log(`largest difference from training without a stop: ${difference.toExponential(1)}`)
  printResult({ ranks: size, from, until, loss: alone.losses.at(-1)!, difference })
}
await world.barrier()
if (isOwn && rank === 0) await rm(directory, { recursive: true })
await world.destroy()
