import { availableParallelism } from 'node:os'
import { formatTable } from '@tsrun/core'
import { drawTimeline, type ProcessGroup } from '@tsrun/distributed'
import * as training from '@tsrun/training'
import * as planning from '@tsrun/training/planning'
import { gridLegend, percent, printResult, wrap } from './output.ts'

/** A schedule to compare with others. */
export interface Variant {
  readonly schedule: planning.ScheduleName
  /** Stages per rank. */
  readonly chunks?: number
}

const ROWS = 32
export const LAYERS = 16

/**
 * Trains the same network on the same digits with each of the schedules, which take turns. Prints their
 * grids, the measured timeline of one step of the second, and a table of bubbles, times and activations.
 */
export async function compareSchedules(
  group: ProcessGroup,
  variants: readonly Variant[],
  microbatches: number,
  steps: number,
): Promise<void> {
  const { rank, size } = group
  const batch = microbatches * ROWS
  const recipe = training.shardedMLP({ layers: LAYERS, hidden: 256 })
  const runs = variants.map(({ schedule, chunks = 1 }) => {
    const optimizer = new training.SGD({ learningRate: 0.005 })
    const options = { schedule, microbatches, optimizer, ...(chunks > 1 ? { chunks } : {}) }
    const pipe = training.pipeline(recipe, group, options)
    const stages = { stages: size * chunks, ranks: size, microbatches }
    const ideal = planning.schedule(schedule, stages)
    const title = chunks > 1 ? `${schedule} x${chunks}` : schedule
    const meter = new training.StepMeter(pipe.recorder)
    return { title, chunks, pipe, ideal, meter, losses: [] as number[], peak: 0 }
  })
  let step = 0
  for (const examples of training.batches(training.mnist({ split: 'train' }), { batch })) {
    for (const run of runs) {
      await group.barrier()
      // The first step also compiles, so it does not count.
      if (step === 1) run.meter = new training.StepMeter(run.pipe.recorder)
      const { loss, peakInFlight } = await run.meter.time(() => run.pipe.step(examples))
      run.losses.push(loss)
      run.peak = peakInFlight
    }
    if (++step > steps) break
  }

  const cores = availableParallelism()
  const rows: string[][] = []
  const figures = { bubble: [] as number[], ideal: [] as number[], held: [] as number[][] }
  for (const { title, chunks, ideal, meter, peak } of runs) {
    const report = training.pipelineReport(await meter.gather(group), ideal, { cores })
    const peaks = await group.allGatherObject(peak)
    const { bubble } = ideal.simulate()
    // A chunk holds a part of the activations that a micro-batch has on a rank.
    const held = peaks.map((count) => count / chunks)
    figures.bubble.push(report.bubble)
    figures.ideal.push(bubble)
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
  if (rank === 0) {
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
    const loss = shown.losses.at(-1)!
    console.log(`\nLoss ${loss.toFixed(6)}; the schedules differ by at most ${difference}.`)
    if (!(difference < 1e-5)) throw new Error('The schedules do not train alike.')
    printResult({ loss, maxDifference: difference, ...figures })
  }
  for (const { pipe } of runs) pipe.dispose()
}
