import { availableParallelism } from 'node:os'
import { drawTimeline, SpanRecorder, type ProcessGroup } from '@tsrun/distributed'
import { schedule, type ScheduleName } from '@tsrun/training/planning'
import {
  cutBatch,
  disposeModule,
  pipelineReport,
  SGD,
  splitLayers,
  StepMeter,
  type Tensor,
} from '@tsrun/training'
import {
  batchesOf,
  costsOf,
  courseFlags,
  differenceOf,
  endLesson,
  heldBytes,
  isEqual,
  mebibytes,
  networkOf,
  type Course,
} from './course.ts'
import { count, describeFlags, endWith, jobFlags, readFlags } from './flags.ts'
import { startJob } from './job.ts'
import { messagesFlag, sender } from './messages.ts'
import { LessonStage } from './lesson-stage.ts'
import { gridLegend, median, percent, printResult, wrap } from './output.ts'
import { checkRanks, describeLayers, predictStages, stagesFlag } from './stages.ts'
import { pollUtilisation } from './utilisation.ts'

/** The forwards and backwards of one training step, in the order of a schedule. */
export type Step = (stage: LessonStage, link: Link) => Promise<void>

/** What a step needs of the job. */
export interface Link {
  readonly group: ProcessGroup
  readonly microbatches: number
  /** Sends a tensor, as `sendTensor` does. */
  readonly send: (tensor: Tensor, to: number) => Promise<void>
}

const flags = {
  ...courseFlags,
  ...jobFlags(),
  microbatches: count(8),
  stages: stagesFlag,
  messages: messagesFlag,
}

/**
 * Trains the network of the course with `step`, shows how the ranks spent their time, and compares the
 * losses with those of a single process and of the other lessons.
 */
export async function runLesson(lesson: string, name: ScheduleName, step: Step): Promise<void> {
  const given = readFlags(flags)
  const { microbatches, stages, messages, transport, engine, overlap, device, ...course } = given
  const { batch, layers, width } = course
  if (batch % microbatches !== 0) {
    endWith(`--batch ${batch} does not divide into ${microbatches} equal micro-batches`)
  }
  predictStages(name, { stages, layers, microbatches })
  checkRanks(layers)
  const group = await startJob({ transport, engine, overlap, device })
  const link = { group, microbatches, send: sender(group, messages) }
  const { rank, size } = group
  const ranges = splitLayers(layers, size, { costs: costsOf(course) })
  const { from, to } = ranges[rank]!
  const module = networkOf(course).slice(from, to)
  const recorder = new SpanRecorder({ rank })
  const rows = batch / microbatches
  const stage = new LessonStage(module, rank, size, recorder, [rows, width])
  const optimizer = new SGD({ learningRate: course.lr })
  let meter = new StepMeter(recorder)
  const losses: number[] = []
  const times: number[] = []

  const poll = pollUtilisation()
  for (const examples of batchesOf(course)) {
    // The digits are read before the step, which shows how long the ranks compute and wait.
    const inputs = stage.isFirst ? examples.inputs() : undefined
    const labels = stage.isLast ? examples.labels() : undefined
    stage.begin(
      cutBatch(
        {
          size: examples.size,
          inputs: inputs ?? examples.inputs,
          labels: labels ?? examples.labels,
        },
        microbatches,
      ),
    )
    await group.barrier()
    const start = performance.now()
    await meter.time(() => step(stage, link))
    optimizer.step(module.parameters, stage.gradients)
    times.push(performance.now() - start)
    // The first step also compiles, so it does not count.
    if (losses.length === 0) meter = new StepMeter(recorder)
    losses.push(await stage.end())
    inputs?.dispose()
    labels?.dispose()
    group.reportProgress({ step: losses.length }) // for tsrun top and tsrun --trace
  }

  const utilisation = await group.allGatherObject(await poll.stop())
  const cores = availableParallelism()
  const ideal = schedule(name, { stages: size, microbatches })
  const report = pipelineReport(await meter.gather(group), ideal, { cores })
  const peaks = await group.allGatherObject(stage.peakInFlight)
  const bytes = await group.allGatherObject(heldBytes(module, stage.peakInFlight * rows))
  const spans = (await group.allGatherObject(meter.lastSpans)).flat()
  const trained = (await group.allGatherObject(losses))[size - 1]!
  disposeModule(module)
  if (rank === 0) {
    const { bubble } = ideal.simulate()
    console.log(`${size} ranks, ${microbatches} micro-batches of ${rows} images. The schedule:\n`)
    console.log(
      `${ideal.grid()}\n\n${gridLegend}\n\nOne measured step:\n\n${drawTimeline(spans)}\n`,
    )
    console.log(wrap(describeLayers(ranges.map((range) => [range]))))
    report.ranks.forEach((times, at) => {
      const idle = times.idle / (times.idle + times.compute)
      const most = `at most ${peaks[at]!} micro-batches and ${mebibytes(bytes[at]!)} MiB`
      const shares = `computes ${percent(1 - idle, 0)}, CPU ${percent(times.cpuShare, 0)}`
      console.log(wrap(`rank ${at}: ${shares}, ${most}`))
    })
    console.log(`All ranks: idle ${percent(report.bubble)}; ideally ${percent(bubble)}.`)
    // The formula has stages that take the same time, and a core for each rank.
    const simulated = `the simulator predicts ${percent(report.predictedBubble)}`
    if (cores < size) console.log(wrap(`With ${cores} cores for ${size} ranks, ${simulated}.`))
    else console.log(wrap(`With the measured times of these stages, ${simulated}.`))
    const maxDifference = await compareWithOne(course, trained)
    endLesson(course, {
      ...{ name: lesson, ranks: size, losses: trained, milliseconds: median(times.slice(1)) },
      ...{ utilisation, bytes: Math.max(...bytes), idle: report.bubble, ideal: bubble },
      ...(cores < size && { shared: report.predictedBubble }),
      variant: describeFlags(flags, given, ['microbatches', 'transport', 'engine', 'overlap']),
    })
    const shares = { idle: report.bubble, ideal: bubble }
    printResult({
      loss: trained.at(-1)!,
      maxDifference,
      ...shares,
      peaks,
      bytes,
      predicted: report.predictedBubble,
    })
  }
  await group.destroy()
}

/**
 * Trains the whole network in this process. Returns the largest difference of the losses, as a share of
 * the loss.
 */
async function compareWithOne(course: Course, losses: readonly number[]): Promise<number> {
  const whole = networkOf(course).build()
  const stage = new LessonStage(whole, 0, 1, new SpanRecorder({ rank: 0 }), [
    course.batch,
    course.width,
  ])
  const optimizer = new SGD({ learningRate: course.lr })
  const alone: number[] = []
  for (const examples of batchesOf(course)) {
    stage.begin(cutBatch(examples, 1))
    void stage.forward(0)
    void stage.backward(0)
    optimizer.step(whole.parameters, stage.gradients)
    alone.push(await stage.end())
  }
  disposeModule(whole)
  const difference = differenceOf({ losses: alone }, { losses })
  console.log(`Loss after ${losses.length} steps: ${losses.at(-1)!.toFixed(6)}.`)
  console.log(`A single process differs by at most ${difference.toExponential(1)} of it.`)
  if (!isEqual(course, difference))
    throw new Error('The pipeline does not train like a single process.')
  return difference
}
