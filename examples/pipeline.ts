// The main example: a network of 16 layers learns to read digits as a pipeline of one stage per rank.
//
//   npx tsrun --nproc 4 examples/pipeline.ts
//   npx tsrun --nproc 4 examples/pipeline.ts --schedule gpipe --microbatches 16
//   npx tsrun --nproc 4 examples/pipeline.ts --schedule interleaved --stages 8
//   npx tsrun --nproc 4 examples/pipeline.ts --schedule zb-h1
//   npx tsrun --nproc 2 examples/pipeline.ts --schedule-file examples/schedules/last-first.csv
//   npx tsrun --nproc 2 examples/pipeline.ts --report --messages
//   node --import tsx examples/pipeline.ts        (the same script in one process)
//
// Each rank builds only its own layers. Stages have about the same work: the first layer is as much as
// two others. Activations are sent from rank to rank and gradients back, in the order of the schedule.
// The result equals that of a single process in every layout. `--report` shows the time of each rank, the
// timeline of a step and the schedule; `--messages` shows what each rank sends.
//
// Read: docs/pipeline.md. Exercises: examples/exercises.md#pipeline

import { readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { ProgressLine } from '@tsrun/core'
import { drawTimeline } from '@tsrun/distributed'
import * as training from '@tsrun/training'
import * as planning from '@tsrun/training/planning'
import {
  choice,
  count,
  endWith,
  integer,
  jobFlags,
  positive,
  readFlags,
  text,
  toggle,
} from './lib/flags.ts'
import { costsOf } from './lib/course.ts'
import { startJob } from './lib/job.ts'
import { describeSending, messagesFlag } from './lib/messages.ts'
import { explainBubble, formatReport } from './lib/pipeline-report.ts'
import { gridLegend, grouped, percent, printResult } from './lib/output.ts'
import { checkRanks, checkStages, chunksOf, stagesFlag } from './lib/stages.ts'
import { describeUtilisation, pollUtilisation, type Utilisation } from './lib/utilisation.ts'

const flags = readFlags({
  schedule: choice(planning.scheduleNames, '1f1b'),
  // A schedule of your own instead of a named one: a line of actions for each rank.
  'schedule-file': text(''),
  microbatches: count(8),
  layers: count(16),
  width: count(256),
  // With 0, a rank has two in the schedules that take several, otherwise one.
  stages: stagesFlag,
  epochs: count(2),
  // Micro-batches of 96 rows and 256 columns: a pass is long beside a message.
  batch: count(768),
  seed: integer(0),
  lr: positive(0.004),
  // Fewer images, for slow machines.
  images: count(60_000),
  report: toggle('shows the time of each rank, the last step and the schedule'),
  messages: messagesFlag,
  // With the engine `auto`, messages have a thread of their own only if each rank has a second core.
  ...jobFlags('auto'),
})
const { epochs, seed } = flags
checkRanks(flags.layers)

const group = await startJob(flags)
const { rank, size } = group
const speaks = rank === 0

const file = flags['schedule-file']
const own = file === '' ? undefined : planning.parseSchedule(readSchedule(file), file)
if (own === undefined) checkStages(flags.schedule, { ...flags, ranks: size })
const chunks = chunksOf(flags.schedule, { ...flags, ranks: size })
const optimizer = new training.Adam()
const model = training.shardedMLP({ layers: flags.layers, hidden: flags.width, seed })
const pipe = training.pipeline(model, group, {
  schedule: own ?? flags.schedule,
  ...(own === undefined ? { microbatches: flags.microbatches } : {}),
  ...(own === undefined && chunks !== undefined ? { chunks } : {}),
  split: { costs: costsOf(flags) },
  optimizer,
})
const train = firstOf(training.mnist({ split: 'train' }))
const test = firstOf(training.mnist({ split: 'test' }))
const [testBatch] = training.batches(test, { batch: test.size, shuffle: false })

const batch = Math.min(flags.batch, train.size)
const progress = new ProgressLine()
const steps = Math.ceil(train.size / batch) * epochs
let meter = new training.StepMeter(pipe.recorder)
let done = 0
let peakInFlight = 0
let accuracy = 0
let utilisation: Utilisation | undefined
const begin = performance.now()

for (let epoch = 0; epoch < epochs; epoch++) {
  const epochBegin = performance.now()
  // The figures are those of the last epoch, because the first one also compiles.
  meter = new training.StepMeter(pipe.recorder)
  const poll = pollUtilisation()
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
  utilisation = await poll.stop()
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
const busy = await group.allGatherObject(utilisation!)
const cores = availableParallelism()
const message = training.messageTime(spans)
const report = training.pipelineReport(samples, schedule, { cores })
const withMessages = training.pipelineReport(samples, schedule, { cores, transfer: message })

if (flags.messages) {
  for (const { kind, bytes = 0, peer } of meter.lastSpans) {
    const rows = bytes / Float32Array.BYTES_PER_ELEMENT / flags.width
    if (kind === 'send') console.log(describeSending([rows, flags.width], peer!))
  }
}
await group.barrier()
if (speaks) {
  if (flags.report) {
    console.log(`\n${formatReport(report, facts, schedule)}`)
    console.log(`\nThe last full step, measured:\n${drawTimeline(spans)}`)
    console.log(`\nThe schedule, ideal:\n${schedule.grid()}\n\n${gridLegend}`)
  }
  console.log(`\n${describeUtilisation(busy)}`)
  console.log(explainBubble(schedule, report, withMessages, message, cores))
  if (!flags.report) console.log('For the time of each rank and the schedule, add --report.')
  printResult({
    accuracy,
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

function firstOf(dataset: training.Examples): training.Examples {
  return { ...dataset, size: Math.min(dataset.size, flags.images) }
}

/** The rate rises for a tenth of all steps, then falls to zero; better than a constant rate. */
function learningRate(step: number): number {
  const warmUp = 0.1 * steps
  return flags.lr * Math.min((step + 1) / warmUp, (steps - step) / (steps - warmUp))
}
