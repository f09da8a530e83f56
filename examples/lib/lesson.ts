import { availableParallelism } from 'node:os'
import { drawTimeline, initProcessGroup, SpanRecorder, type ProcessGroup } from '@tsrun/distributed'
import { schedule, type ScheduleName } from '@tsrun/training/planning'
import {
  batches,
  cutBatch,
  disposeModule,
  loadBackend,
  mnist,
  pipelineReport,
  SGD,
  shardedMLP,
  splitLayers,
  StepMeter,
  type ExampleBatch,
} from '@tsrun/training'
import { choice, readFlags } from './flags.ts'
import { gpuUtilisation } from './gpu-utilisation.ts'
import { LessonStage } from './lesson-stage.ts'
import { gridLegend, percent, printResult } from './output.ts'

/** The forwards and backwards of one training step, in the order of a schedule. */
export type Step = (stage: LessonStage) => Promise<void>

const STEPS = 4
const ROWS = 64
const HIDDEN = 256
const LAYERS = 16
// Small, so that rounding errors, which depend on the order of sums, do not grow from step to step.
const learningRate = 0.005

/**
 * Joins the job. With `--overlap on` another thread of each rank moves messages while the rank
 * computes (the worker engine), with `off` messages move only while the rank waits (the inline engine).
 * The default is what tsrun chooses for this machine: `off` where ranks have no second core.
 */
export async function joinLesson(): Promise<ProcessGroup> {
  const { overlap } = readFlags({ overlap: choice(overlaps, 'auto') })
  return await initProcessGroup(engines[overlap])
}

const overlaps = ['auto', 'on', 'off'] as const
const engines = { auto: {}, on: { engine: 'worker' }, off: { engine: 'inline' } } as const

/**
 * Trains a network of 16 layers on some digits with `step`, shows how the ranks spent their time,
 * and compares the losses with those of a single process.
 */
export async function runLesson(
  group: ProcessGroup,
  name: ScheduleName,
  microbatches: number,
  step: Step,
): Promise<void> {
  await loadBackend()
  const { rank, size } = group
  const batchSize = microbatches * ROWS
  const recipe = shardedMLP({ layers: LAYERS, hidden: HIDDEN })
  const { from, to } = splitLayers(LAYERS, size)[rank]!
  const module = recipe.slice(from, to)
  const recorder = new SpanRecorder({ rank })
  const stage = new LessonStage(module, rank, size, recorder, [ROWS, HIDDEN])
  const optimizer = new SGD({ learningRate })
  let meter = new StepMeter(recorder)
  const losses: number[] = []

  for (const batch of lessonBatches(batchSize)) {
    stage.begin(cutBatch(batch, microbatches))
    await group.barrier()
    await meter.time(() => step(stage))
    // The first step also compiles, so it does not count.
    if (losses.length === 0) meter = new StepMeter(recorder)
    optimizer.step(module.parameters, stage.gradients)
    losses.push(await stage.end())
    group.reportProgress({ step: losses.length }) // for tsrun top and tsrun --trace
  }

  const gpus = rank === 0 ? await gpuUtilisation() : undefined
  const ideal = schedule(name, { stages: size, microbatches })
  const report = pipelineReport(await meter.gather(group), ideal)
  const peaks = await group.allGatherObject(stage.peakInFlight)
  const spans = (await group.allGatherObject(meter.lastSpans)).flat()
  const trained = (await group.allGatherObject(losses))[size - 1]!
  if (rank === 0) {
    const cores = availableParallelism()
    const { bubble } = ideal.simulate()
    console.log(`${size} ranks, ${microbatches} micro-batches of ${ROWS} images. The schedule:\n`)
    console.log(
      `${ideal.grid()}\n\n${gridLegend}\n\nOne measured step:\n\n${drawTimeline(spans)}\n`,
    )
    report.ranks.forEach((times, at) => {
      const idle = times.idle / (times.idle + times.compute)
      console.log(
        `rank ${at}: computes ${percent(1 - idle, 0)}, CPU ${percent(times.cpuShare, 0)}, ` +
          `at most ${peaks[at]!} micro-batches in flight`,
      )
    })
    if (gpus !== undefined) console.log(`GPUs: ${gpus}.`)
    console.log(`All ranks: idle ${percent(report.bubble)}; ideally ${percent(bubble)}.`)
    if (cores < size) {
      const shared = percent(ideal.simulate({ cores }).bubble)
      console.log(`The ideal needs a core for each rank; with ${cores} cores it is ${shared}.`)
    }
    const maxDifference = await compareLosses(trained, batchSize)
    printResult({ loss: trained.at(-1)!, maxDifference, idle: report.bubble, ideal: bubble, peaks })
  }
  disposeModule(module)
}

/** Trains the whole network in this process. Returns the largest difference of the losses. */
async function compareLosses(trained: readonly number[], batchSize: number): Promise<number> {
  const whole = shardedMLP({ layers: LAYERS, hidden: HIDDEN }).build()
  const stage = new LessonStage(whole, 0, 1, new SpanRecorder({ rank: 0 }), [batchSize, HIDDEN])
  const optimizer = new SGD({ learningRate })
  const differences: number[] = []
  for (const batch of lessonBatches(batchSize)) {
    stage.begin(cutBatch(batch, 1))
    stage.forward(0, stage.inputs(0))
    stage.backward(0)
    optimizer.step(whole.parameters, stage.gradients)
    differences.push(Math.abs((await stage.end()) - trained[differences.length]!))
  }
  disposeModule(whole)
  const largest = Math.max(...differences)
  console.log(`Loss after ${trained.length} steps: ${trained.at(-1)!.toFixed(6)}.`)
  console.log(`A single process differs by at most ${largest.toExponential(1)}.\n`)
  if (!(largest < 1e-5)) throw new Error('The pipeline does not train like a single process.')
  return largest
}

/** The batches of the lesson. */
function* lessonBatches(batchSize: number): Generator<ExampleBatch> {
  let left = STEPS
  for (const batch of batches(mnist({ split: 'train' }), { batch: batchSize })) {
    if (left-- === 0) return
    yield batch
  }
}
