import { formatTable } from '@tsrun/core'
import type { Schedule } from '@tsrun/training/planning'
import type { PipelineReport } from '@tsrun/training'
import { grouped, percent, wrap } from './output.ts'

/** Facts about one rank. */
export interface RankFacts {
  readonly layers: number
  readonly parameters: number
  readonly peakInFlight: number
}

/** A table with a row for each rank: the measured figures, and those that the simulator predicts. */
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
  return formatTable([headers, ...rows], 'right').join('\n')
}

/** Explains the bubbles, and how much messages add to the predicted one. */
export function explainBubble(
  schedule: Schedule,
  report: PipelineReport,
  withMessages: PipelineReport,
  message: number,
  cores: number,
): string {
  const { stepTime, predictedStepTime, bubble, predictedBubble, steps } = report
  const ranks = report.ranks.length
  const milliseconds = (time: number): string => `${time.toFixed(1)} ms`
  return [
    wrap(
      `${milliseconds(stepTime)} measured, ${milliseconds(predictedStepTime)} predicted, ` +
        `${milliseconds(withMessages.predictedStepTime)} with ${message.toFixed(2)} ms per message`,
      'Step     ',
    ),
    wrap(
      `${percent(bubble)} measured, ${percent(predictedBubble)} predicted, ` +
        `${percent(withMessages.predictedBubble)} with messages (medians of ${steps} steps)`,
      'Bubble   ',
    ),
    wrap(describeIdeal(schedule), 'Ideal    '),
    wrap(
      'The bubble is the share of the time from the first forward to the last backward in which the ' +
        'ranks run neither.',
    ),
    wrap(
      cores < ranks
        ? `${ranks} ranks share ${cores} cores, so at most ${cores} can compute at a time. Measured and ` +
            'predicted figures use the CPU times of F and B, and the simulated ranks also wait for a free core.'
        : 'The simulator uses the measured times of F and B.',
    ),
  ].join('\n')
}

/** The bubble of the schedule alone, with its formula where that is (S-1)/(M+S-1). */
function describeIdeal(schedule: Schedule): string {
  const { microbatches: m, actions } = schedule
  const s = actions.length
  const { bubble } = schedule.simulate()
  const isKnown = Math.abs(bubble - (s - 1) / (m + s - 1)) < 1e-9
  const formula = isKnown ? ` = (S-1)/(M+S-1), S = ${s}, M = ${m},` : ''
  return `${percent(bubble)}${formula} with equal stages and a core for each rank`
}
