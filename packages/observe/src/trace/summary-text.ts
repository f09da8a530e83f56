import { shareOfPart, shareTitles } from './shares.ts'
import type { PathShare } from './critical-path.ts'
import type { RankSummary, TraceSummary } from './summary.ts'

const MOST_PARTS = 6

/** Describes a trace in sentences, as an addition to the table. */
export function summarySentences(summary: TraceSummary): string[] {
  const { steps, byRank, slowest } = summary
  return [
    `critical path: ${pathText(summary)}`,
    ...(slowest === undefined ? [] : [slowestText(slowest, byRank)]),
    ...(steps === undefined
      ? ['The program reports no steps (group.reportProgress), so this is its time as a whole.']
      : []),
  ]
}

function pathText({ criticalPath }: TraceSummary): string {
  const total = criticalPath.reduce((sum, each) => sum + each.milliseconds, 0)
  if (total === 0) return 'unknown'
  const sums = (keyOf: (each: PathShare) => string): string => {
    const times = new Map<string, number>()
    for (const each of criticalPath) {
      times.set(keyOf(each), (times.get(keyOf(each)) ?? 0) + each.milliseconds)
    }
    const sorted = [...times].sort((a, b) => b[1] - a[1])
    const shown = sorted
      .slice(0, MOST_PARTS)
      .map(([key, time]) => `${key} ${percentText(time / total)}`)
    return shown.join(', ') + (sorted.length > MOST_PARTS ? ', …' : '')
  }
  const parts = sums(({ part }) =>
    part === 'waiting' ? 'waiting' : shareTitles[shareOfPart[part]],
  )
  return `${parts}; of its time, ${sums(({ rank }) => `rank ${rank}`)}`
}

function slowestText(slowest: number, byRank: readonly RankSummary[]): string {
  const own = byRank.find(({ rank }) => rank === slowest)!
  const busy = ({ shares }: RankSummary): number => shares.compute + shares.input + shares.overhead
  const times = byRank.filter(({ rank }) => rank !== slowest).map(busy)
  const range = [...new Set([Math.min(...times), Math.max(...times)].map(durationText))].join(
    ' to ',
  )
  return (
    `slowest rank: rank ${slowest}; directly or through other ranks, the others wait ${durationText(own.causes)} of each step for it; ` +
    `it is busy for ${durationText(busy(own))} of it, the others for ${range}`
  )
}

/** Formats milliseconds. */
export function durationText(time: number): string {
  return time >= 10_000 ? `${(time / 1000).toFixed(1)} s` : `${time.toFixed(time < 100 ? 1 : 0)} ms`
}

/** Formats a fraction as a percentage. */
export function percentText(share: number): string {
  return `${(100 * share).toFixed(1)} %`
}
