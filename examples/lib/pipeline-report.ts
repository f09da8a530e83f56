import type { PipelineReport, Schedule } from '@tsrun/training'
import { grouped, percent } from './progress.ts'
import { formatTable } from './table.ts'

/** What each rank knows about itself. */
export interface RankFacts {
  readonly layers: number
  readonly parameters: number
  readonly peakInFlight: number
}

/** A row for each rank: what was measured, and beside it what the simulator predicts. */
export function formatReport(
  report: PipelineReport,
  facts: readonly RankFacts[],
  schedule: Schedule,
): string {
  const headers = ['rank', 'layers', 'parameters', 'F ms', 'B ms', 'compute', 'waiting', 'transfer']
  headers.push('idle', 'predicted', 'CPU', 'peak', 'predicted')
  const predictedPeaks = schedule.simulate().ranks.map(({ peakInFlight }) => peakInFlight)
  const rows = report.ranks.map((rank, at) => {
    const { layers, parameters, peakInFlight } = facts[at]!
    const step = rank.compute + rank.idle
    return [
      String(at),
      String(layers),
      grouped(parameters),
      rank.forward.toFixed(2),
      rank.backward.toFixed(2),
      ...[rank.compute, rank.waiting, rank.transfer, rank.idle].map((time) =>
        percent(time / step, 0),
      ),
      percent(report.predictedIdle[at]!, 0),
      percent(rank.cpuShare, 0),
      String(peakInFlight),
      String(predictedPeaks[at]),
    ]
  })
  return formatTable(headers, rows)
}

/** What the bubbles mean, and what messages add to the predicted one. */
export function explainBubble(
  report: PipelineReport,
  withMessages: PipelineReport,
  message: number,
  cores: number,
): string {
  const { stepTime, predictedStepTime, bubble, predictedBubble, steps } = report
  const ranks = report.ranks.length
  const milliseconds = (time: number): string => `${time.toFixed(1)} ms`
  return [
    `Step     ${milliseconds(stepTime)} measured, ${milliseconds(predictedStepTime)} predicted, ` +
      `${milliseconds(withMessages.predictedStepTime)} with ${message.toFixed(2)} ms a message`,
    `Bubble   ${percent(bubble)} measured, ${percent(predictedBubble)} predicted, ` +
      `${percent(withMessages.predictedBubble)} with messages (medians of ${steps} steps)`,
    'The bubble is the share of the time in which a rank was in neither a forward nor a backward.',
    cores < ranks
      ? `${ranks} ranks share ${cores} cores, so no more than ${cores} can compute at a time: on both sides ` +
        'the CPU times\nof F and B count, and the simulated ranks also wait until a core is free.'
      : 'The simulator takes the measured times of F and B.',
  ].join('\n')
}
