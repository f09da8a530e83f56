import { formatRanks, formatSeconds, monotonicNow } from '@tsrun/core'
import { activityOf, type RankFate, type RankStatus } from '@tsrun/distributed/record'
import type { StackReport } from '../../protocol/control.ts'

/** The stack of one rank. */
export interface RankStack {
  readonly rank: number
  readonly pid: number
  /** Programs of `--no-python` have no JavaScript stack. */
  readonly isNode: boolean
  /** How the rank ended; undefined while the rank runs. */
  readonly fate: RankFate | undefined
  /** Undefined: the rank did not answer. */
  readonly report: Pick<StackReport, 'stack' | 'resources'> | undefined
}

interface MeasuredStatus extends RankStatus {
  /** The fraction of the time outside operations that this rank spent computing. */
  readonly computing?: number | undefined
}

/**
 * Formats the stacks of ranks, each below a line with the rank's state and operation. Ranks with equal
 * stacks share one.
 */
export function stacksText(
  stacks: readonly RankStack[],
  states: readonly MeasuredStatus[],
): string {
  if (stacks.length === 0) return 'no rank runs here now\n'
  const alike = new Map<string, string[]>()
  for (const stack of stacks) {
    const state = states.find(({ rank }) => rank === stack.rank)
    const what = state === undefined ? stack.fate : describeState(state)
    const title = `rank ${stack.rank} (pid ${stack.pid})${what === undefined ? '' : `: ${what}`}`
    const text = describeStack(stack)
      .map((line) => `    ${line}\n`)
      .join('')
    alike.set(text, [...(alike.get(text) ?? []), title])
  }
  return [...alike].map(([text, titles]) => `${titles.join('\n')}\n${text}`).join('')
}

function describeState(status: MeasuredStatus): string {
  const { state, since, operation, sequence, group, waitsFor } = status
  const activity = activityOf(status, status.computing)
  const time = formatSeconds(Math.max(0, monotonicNow() - since) / 1000)
  const what = ['left', 'died'].includes(activity) ? activity : `${activity} for ${time}`
  if (operation === undefined) return `${what}, no operation yet`
  const name = `${operation} #${sequence} of ${group ?? ''}`
  const waits = activity === 'waiting' ? `, for ${formatRanks(waitsFor)}` : ''
  return `${what}, ${state === 'operation' ? 'in' : 'after'} ${name}${waits}`
}

function describeStack({ isNode, fate, report }: RankStack): string[] {
  if (fate !== undefined) return []
  if (!isNode) return ['another program than Node (--no-python), which has no JavaScript stack']
  if (report === undefined)
    return ['no answer: the process is stopped, is starting, or has just ended']
  const { stack, resources = [] } = report
  if (stack === undefined)
    return ['no answer within 1 s: its main thread is blocked in native code']
  const frames = stack
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line.startsWith('at ') && !OURS.test(line))
  const own = frames.filter((line) => !/\(?node:/.test(line))
  if (own.length > 0) return own
  // Only frames of Node, for example while it loads modules.
  if (frames.length > 0) return frames
  const names = [...new Set(resources)].filter((name) => !usual.includes(name))
  const what = names.length === 0 ? '' : ` (${names.join(', ')})`
  return [`no JavaScript runs: it awaits something in its event loop${what}`]
}

/** Resources of every rank: its standard streams, and the thread that requests stacks. */
const usual = ['PipeWrap', 'MessagePort', 'CloseReq']

/** Matches the frames of the stack request. */
const OURS = /^at (\S+ \()?<anonymous>:\d+:\d+\)?$/
