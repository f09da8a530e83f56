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

/** What the bubbles mean when ranks share cores, and when they don't. */
export function explainBubble(report: PipelineReport, ranks: number, cores: number): string {
  const { stepTime, predictedStepTime, bubble, predictedBubble, steps } = report
  const shared = cores < ranks
  return [
    `A step takes ${stepTime.toFixed(1)} ms, the simulator says ${predictedStepTime.toFixed(1)} ms.`,
    `Bubble, the share of time in which a rank was not inside a forward or backward:`,
    `${percent(bubble)} measured, ${percent(predictedBubble)} predicted (medians of ${steps} steps).`,
    shared
      ? `${ranks} ranks share ${cores} cores, so a forward or backward also takes time in which others have\n` +
        'the core. The simulator takes their CPU times and shares the cores out in the same way.'
      : 'The simulator takes the measured times of F and B, and nothing for messages.',
  ].join('\n')
}
