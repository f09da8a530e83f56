import type { Span } from '@tsrun/distributed/record'
import type { Arrivals, Piece, Window } from './division.ts'
import type { StepPart } from './shares.ts'

/** The time that one rank spends in one part on the critical path. */
export interface PathShare {
  readonly rank: number
  readonly part: StepPart
  readonly milliseconds: number
}

/** Sums of the times of several steps. */
export interface PathTotals {
  readonly path: Map<string, PathShare>
  /** The time that other ranks waited for each rank, directly or through other waiting ranks. */
  readonly causes: Map<number, number>
}

/** Maximum jumps between ranks in a step; more indicate inconsistent data. */
const MOST_JUMPS = 100_000

/**
 * Walks back through one step from the end of the rank that ends last. Whenever a rank waited for another
 * rank, continues on the other rank, at the time when that rank became ready.
 *
 * @param windows - of the step on each rank
 * @param pieces - the divided windows
 * @param totals - receives the times of this step
 */
export function addCriticalPath(
  ranks: readonly number[],
  windows: readonly Window[],
  pieces: readonly (readonly Piece[])[],
  arrivals: Arrivals,
  { path, causes }: PathTotals,
): void {
  const places = new Map(ranks.map((rank, i) => [rank, i]))
  const blame = (rank: number, window: Window, depth: number) => {
    const own = pieces[places.get(rank)!]!
    for (let i = Math.max(0, lastBefore(own, window.start)); i < own.length; i++) {
      const { part, operation, ...piece } = own[i]!
      if (piece.start >= window.end) break
      const start = Math.max(piece.start, window.start)
      const end = Math.min(piece.end, window.end)
      if (end <= start) continue
      const cause = part === 'waiting' ? causeOf(operation, arrivals)?.rank : undefined
      const waitsForOther = cause !== undefined && cause !== rank && places.has(cause)
      if (waitsForOther && depth < ranks.length) blame(cause, { start, end }, depth + 1)
      else if (depth > 0) causes.set(rank, (causes.get(rank) ?? 0) + end - start)
    }
  }
  for (const [i, window] of windows.entries()) blame(ranks[i]!, window, 0)
  const add = (rank: number, part: StepPart, milliseconds: number) => {
    if (milliseconds <= 0) return
    const key = `${rank} ${part}`
    const before = path.get(key)?.milliseconds ?? 0
    path.set(key, { rank, part, milliseconds: before + milliseconds })
  }
  let at = windows.reduce((last, { end }, i) => (end > windows[last]!.end ? i : last), 0)
  let time = windows[at]!.end
  for (let jumps = 0; jumps < MOST_JUMPS; jumps++) {
    const own = pieces[at]!
    const rank = ranks[at]!
    let jumped = false
    for (let i = lastBefore(own, time); i >= 0; i--) {
      const { part, start, end, operation } = own[i]!
      const until = Math.min(end, time)
      const cause = part === 'waiting' ? causeOf(operation, arrivals) : undefined
      const to = cause && places.get(cause.rank)
      const ready = cause?.start ?? until
      if (to === undefined || to === at || ready >= time || ready < windows[to]!.start) {
        add(rank, part, until - start)
        continue
      }
      // After `ready`, the message is in transfer to this rank.
      add(rank, 'transfer', Math.max(0, until - Math.max(ready, start)))
      at = to
      time = Math.min(until, ready)
      jumped = true
      break
    }
    if (!jumped) break
  }
}

/** The rank that an operation waits for, and when that rank became ready; undefined if unknown. */
function causeOf(operation: Span | undefined, arrivals: Arrivals) {
  if (operation === undefined) return undefined
  if (operation.kind === 'collective') return arrivals.of(operation)
  const { peer, start, waited = 0 } = operation
  return peer === undefined ? undefined : { rank: peer, start: start + waited }
}

/** The index of the last piece that begins before a time, or -1. */
function lastBefore(pieces: readonly Piece[], time: number) {
  let [low, high] = [0, pieces.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if (pieces[middle]!.start < time) low = middle + 1
    else high = middle
  }
  return low - 1
}
