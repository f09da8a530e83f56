import { availableParallelism } from 'node:os'
import { formatTable } from '@tsrun/core'
import { drawTimeline, type ProcessGroup } from '@tsrun/distributed'
import * as training from '@tsrun/training'
import * as planning from '@tsrun/training/planning'
import { batchesOf, costsOf, courseFlags, networkOf, type Course } from './course.ts'
import { count, jobFlags } from './flags.ts'
import { messagesFlag, showSent } from './messages.ts'
import { gridLegend, percent, printResult, wrap } from './output.ts'
import { describeLayers, stagesFlag } from './stages.ts'
import { describeUtilisation, pollUtilisation } from './utilisation.ts'

/** A schedule to compare with others. */
export interface Variant {
  readonly schedule: planning.ScheduleName
  /** Stages per rank, in a schedule that takes several. */
  readonly chunks?: number
}

/** The flags of the examples that compare schedules. */
export const comparisonFlags = {
  ...courseFlags,
  microbatches: count(8),
  stages: stagesFlag,
  messages: messagesFlag,
  ...jobFlags(),
}

/**
 * Trains the network of the course with each of the schedules, which take turns. The first is the one that
 * the others are compared with. Prints their grids, the measured timeline of one step of the second, a
 * table of bubbles, times and activations, and which schedules are faster than the first.
 */
export async function compareSchedules(
  group: ProcessGroup,
  variants: readonly Variant[],
  {
    microbatches,
    messages,
    ...course
  }: Course & { readonly microbatches: number; readonly messages: boolean },
): Promise<void> {
  const { rank, size } = group
  const recipe = networkOf(course)
  const split = { costs: costsOf(course) }
  const runs = variants.map(({ schedule, ...several }) => {
    const { chunks = 1 } = several
    const optimizer = new training.SGD({ learningRate: course.lr })
    const options = { schedule, microbatches, optimizer, split, ...several }
    const pipe = training.pipeline(recipe, group, options)
    const stages = { stages: size * chunks, ranks: size, microbatches }
    const ideal = planning.schedule(schedule, stages)
    const title = chunks > 1 ? `${schedule} x${chunks}` : schedule
    const meter = new training.StepMeter(pipe.recorder)
    return { title, chunks, pipe, ideal, meter, losses: [] as number[], peak: 0 }
  })
  const poll = pollUtilisation()
  for (const examples of batchesOf(course)) {
    // The digits are read before the steps, which show how long the ranks compute and wait.
    const [inputs, labels] = [examples.inputs(), examples.labels()]
    for (const run of runs) {
      await group.barrier()
      // The first step also compiles, so it does not count.
      if (run.losses.length === 1) run.meter = new training.StepMeter(run.pipe.recorder)
      const { loss, peakInFlight } = await run.meter.time(() => run.pipe.step({ inputs, labels }))
      run.losses.push(loss)
      run.peak = peakInFlight
    }
    training.tf.dispose([inputs, labels])
  }

  const utilisation = await group.allGatherObject(await poll.stop())
  const cores = availableParallelism()
  const rows: string[][] = []
  const figures = {
    bubble: [] as number[],
    predicted: [] as number[],
    ideal: [] as number[],
    stepMs: [] as number[],
    held: [] as number[][],
  }
  const timings: Timing[] = []
  for (const { title, chunks, ideal, meter, peak } of runs) {
    const report = training.pipelineReport(await meter.gather(group), ideal, { cores })
    const peaks = await group.allGatherObject(peak)
    const { bubble } = ideal.simulate()
    // A chunk holds a part of the activations that a micro-batch has on a rank.
    const held = peaks.map((count) => count / chunks)
    figures.bubble.push(report.bubble)
    figures.predicted.push(report.predictedBubble)
    figures.ideal.push(bubble)
    figures.stepMs.push(report.stepTime)
    const computed = report.stepTime * (1 - report.bubble)
    const { stepTime: step, predictedStepTime: predicted } = report
    timings.push({ title, computed, step, predicted, ideal: bubble })
    figures.held.push(held)
    const times = [report.stepTime, report.predictedStepTime].map((time) => time.toFixed(1))
    const bubbles = [bubble, report.bubble, report.predictedBubble].map((share) => percent(share))
    rows.push([title, ...bubbles, ...times, held.map((count) => String(count)).join(' ')])
  }
  const shown = runs[1] ?? runs[0]!
  const spans = (await group.allGatherObject(shown.meter.lastSpans)).flat()
  const difference = Math.max(
    ...runs.flatMap(({ losses }) =>
      losses.map((loss, at) => Math.abs(loss - runs[0]!.losses[at]!)),
    ),
  )
  const layers = await group.allGatherObject(runs.map(({ pipe }) => pipe.chunks))
  if (messages) showSent(shown.meter.lastSpans, course.width)
  await group.barrier()
  if (rank === 0) {
    for (const [at, { title }] of runs.entries()) {
      console.log(wrap(describeLayers(layers.map((own) => own[at]!)), `${title}: `))
    }
    console.log()
    // With more chunks there is too much to read.
    for (const { title, ideal } of runs.filter(({ chunks }) => chunks <= 2)) {
      console.log(`${title}:\n${ideal.grid()}\n`)
    }
    console.log(`${gridLegend}\n\nOne measured step of ${shown.title}:\n\n${drawTimeline(spans)}\n`)
    const headers = ['schedule', 'ideal bubble', 'measured', 'predicted', 'step ms', 'predicted']
    headers.push('micro-batches held, by rank')
    console.log(formatTable([headers, ...rows], 'right').join('\n'))
    if (runs.some(({ chunks }) => chunks > 1)) {
      const share = 'each holds 1/c of the activations that a micro-batch has on a rank'
      console.log(`\n${wrap(`With c chunks, ${share}.`)}`)
    }
    if (cores < size) {
      const effect = 'so the measured and predicted bubbles are larger'
      console.log(`\n${wrap(`${size} ranks share ${cores} cores, ${effect}.`)}`)
    }
    console.log(`\n${describeUtilisation(utilisation)}`)
    const [first, ...others] = timings
    for (const each of others) {
      console.log(`\n${wrap(explainSpeed(each, first!, { ranks: size, cores }))}`)
    }
    const loss = shown.losses.at(-1)!
    console.log(`\nLoss ${loss.toFixed(6)}; the schedules differ by at most ${difference}.`)
    if (!(difference < 1e-5)) throw new Error('The schedules do not train alike.')
    printResult({ loss, maxDifference: difference, ...figures })
  }
  for (const { pipe } of runs) pipe.dispose()
}

/** The milliseconds of a step. */
export interface Timing {
  readonly title: string
  readonly step: number
  /** What the simulator predicts from the measured passes, with the cores of this machine. */
  readonly predicted: number
  /** Of all passes, as a mean over the ranks. */
  readonly computed: number
  /** The bubble, as a share, with equal stages and a core for each rank. */
  readonly ideal: number
}

/** Two steps whose times differ by less than this share are as fast as each other. */
const ALIKE = 0.02

/**
 * Says how long a schedule should take beside another, how long it took on this machine, and why if it was
 * not faster.
 */
export function explainSpeed(
  own: Timing,
  plain: Timing,
  { ranks, cores }: { readonly ranks: number; readonly cores: number },
): string {
  const times = (ratio: number): string => `${ratio.toFixed(2)} times`
  const [predicted, ratio] = [own.predicted / plain.predicted, own.step / plain.step]
  const ideal = (1 - plain.ideal) / (1 - own.ideal)
  const begin =
    `${own.title} should ideally take ${times(ideal)} as long as ${plain.title}, with these passes and ` +
    `cores ${times(predicted)}. It takes ${times(ratio)} as long:`
  if (ratio < 1 - ALIKE) return `${begin} faster on this machine.`
  const slower = `${begin} ${ratio > 1 + ALIKE ? 'slower' : 'no difference'} on this machine.`
  if (ranks === 1) return `${slower} A single rank has no bubble.`
  if (cores < ranks) {
    return (
      `${slower} ${ranks} ranks share ${cores} cores: while a rank waits, another one computes, so a ` +
      'smaller bubble gains little. Start at most as many ranks as cores.'
    )
  }
  if (predicted < 1 - ALIKE) {
    return (
      `${slower} What happens between the passes (messages, above all) takes longer than the smaller ` +
      'bubble saves.'
    )
  }
  const computed = `${own.computed.toFixed(1)} ms instead of ${plain.computed.toFixed(1)} ms`
  if (own.computed > (1 + ALIKE) * plain.computed) {
    return (
      `${slower} A rank computes for ${computed}: its passes are smaller or more, and less efficient. ` +
      'The smaller bubble does not save as much.'
    )
  }
  return `${slower} The passes do not all take the same time, so the bubble hardly becomes smaller.`
}
