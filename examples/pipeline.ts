// The main example: a network of 16 layers learns to read digits as a pipeline of one stage per rank.
//
//   npx tsrun --nproc 4 examples/pipeline.ts
//   npx tsrun --nproc 4 examples/pipeline.ts --schedule gpipe --microbatches 16
//   npx tsrun --nproc 4 examples/pipeline.ts --schedule interleaved --chunks 2
//   npx tsrun --nproc 4 examples/pipeline.ts --schedule zb-h1
//   npx tsrun --nproc 2 examples/pipeline.ts --schedule-file examples/schedules/last-first.csv
//   node --import tsx examples/pipeline.ts        (the same script in one process)
//
// Each rank builds only its own layers. Activations are sent from rank to rank and gradients back, in the
// order of the schedule. The result equals that of a single process in every layout.

import { readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { ProgressLine } from '@tsrun/core'
import { drawTimeline, initProcessGroup } from '@tsrun/distributed'
import * as training from '@tsrun/training'
import * as planning from '@tsrun/training/planning'
import { choice, count, endWith, integer, positive, readFlags, text } from './lib/flags.ts'
import { gpuUtilisation } from './lib/gpu-utilisation.ts'
import { explainBubble, formatReport } from './lib/pipeline-report.ts'
import { gridLegend, grouped, percent, printResult } from './lib/output.ts'

const flags = readFlags({
  schedule: choice(planning.scheduleNames, '1f1b'),
  // A schedule of your own instead of a named one: a line of actions for each rank.
  'schedule-file': text(''),
  microbatches: count(8),
  // Stages per rank; 0: two with the schedules that take several, otherwise one.
  chunks: integer(0),
  epochs: count(2),
  batch: count(256),
  seed: integer(0),
  lr: positive(0.003),
  // Fewer images, for slow machines.
  images: count(60_000),
})
const { batch, chunks, epochs, seed } = flags

// With `auto`, messages have a separate thread only if each rank has a second core.
const group = await initProcessGroup({ engine: 'auto' })
const { blas } = await training.loadBackend()
const { rank, size } = group
const speaks = rank === 0
if (speaks && blas !== undefined) console.log(`matrix products by ${blas}`)

const file = flags['schedule-file']
const own = file === '' ? undefined : planning.parseSchedule(readSchedule(file), file)
const optimizer = new training.Adam()
const pipe = training.pipeline(training.shardedMLP({ layers: 16, seed }), group, {
  schedule: own ?? flags.schedule,
  ...(own === undefined ? { microbatches: flags.microbatches } : {}),
  ...(own === undefined && chunks > 0 ? { chunks } : {}),
  optimizer,
})
const train = firstOf(training.mnist({ split: 'train' }))
const test = firstOf(training.mnist({ split: 'test' }))
const [testBatch] = training.batches(test, { batch: test.size, shuffle: false })

const progress = new ProgressLine()
const steps = Math.ceil(train.size / batch) * epochs
let meter = new training.StepMeter(pipe.recorder)
let done = 0
let peakInFlight = 0
let accuracy = 0
const begin = performance.now()

for (let epoch = 0; epoch < epochs; epoch++) {
  const epochBegin = performance.now()
  // The figures are those of the last epoch, because the first one also compiles.
  meter = new training.StepMeter(pipe.recorder)
  let images = 0
  for (const examples of training.batches(train, { batch, seed, epoch })) {
    optimizer.learningRate = learningRate(done)
    const full = examples.size === batch
    const run = () => pipe.step(examples)
    const { loss, ...step } = await (full ? meter.time(run) : run())
    peakInFlight = Math.max(peakInFlight, step.peakInFlight)
    done += 1
    group.reportProgress({ step: done, loss }) // for tsrun top
    images += examples.size
    if (!speaks) continue
    progress.update(() => {
      const speed = images / ((performance.now() - epochBegin) / 1000)
      const left = ((performance.now() - begin) / done) * (steps - done)
      return (
        `epoch ${epoch + 1}/${epochs}  step ${done}/${steps}  loss ${loss.toFixed(4)}  ` +
        `${grouped(speed)} images/s  ETA ${(left / 1000).toFixed(0)} s`
      )
    })
  }
  const trained = performance.now()
  const judged = await pipe.evaluate(testBatch!)
  accuracy = judged.accuracy
  if (speaks) {
    progress.log(
      `epoch ${epoch + 1}/${epochs}  test accuracy ${percent(accuracy, 2)}  test loss ` +
        `${judged.loss.toFixed(4)}  ${grouped(images / ((trained - epochBegin) / 1000))} images/s`,
    )
  }
}

const schedule =
  own ??
  planning.schedule(flags.schedule, {
    stages: size * pipe.chunks.length,
    ranks: size,
    microbatches: Math.min(flags.microbatches, batch),
  })
const samples = await meter.gather(group)
const spans = (await group.allGatherObject(meter.lastSpans)).flat()
const facts = await group.allGatherObject({
  layers: pipe.chunks.reduce((sum, { from, to }) => sum + to - from, 0),
  parameters: pipe.parameters.reduce((sum, { value }) => sum + value.size, 0),
  peakInFlight,
})
const gpus = speaks ? await gpuUtilisation() : undefined
const cores = availableParallelism()
const message = training.messageTime(spans)
const report = training.pipelineReport(samples, schedule, { cores })
const withMessages = training.pipelineReport(samples, schedule, { cores, transfer: message })

if (speaks) {
  console.log(`\n${formatReport(report, facts, schedule)}`)
  console.log(`\n${explainBubble(report, withMessages, message, cores)}`)
  if (gpus !== undefined) console.log(`GPUs: ${gpus}`)
  console.log('\nThe last full step, measured:')
  console.log(drawTimeline(spans))
  console.log(`\nThe schedule, ideal:\n${schedule.grid()}\n\n${gridLegend}\n`)
  printResult({
    accuracy,
    seconds: process.uptime(),
    bubble: report.bubble,
    predictedBubble: report.predictedBubble,
  })
}
pipe.dispose()
await group.destroy()

function readSchedule(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    return endWith(`--schedule-file: ${(error as Error).message}`)
  }
}

function firstOf(dataset: training.Dataset): training.Dataset {
  return { ...dataset, size: Math.min(dataset.size, flags.images) }
}

/** The rate rises for a tenth of all steps, then falls to zero; better than a constant rate. */
function learningRate(step: number): number {
  const warmUp = 0.1 * steps
  return flags.lr * Math.min((step + 1) / warmUp, (steps - step) / (steps - warmUp))
}
