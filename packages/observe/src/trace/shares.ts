import type { Piece, StepPart } from './division.ts'

/**
 * Where the time of steps goes. `bubble` is the waiting that the schedule of a pipeline has in itself,
 * while it fills and drains, `imbalance` any other waiting for ranks that are not there yet,
 * `communication` the transfer of messages and collectives that nothing hides. `overhead` is everything else: copies
 * into and out of buffers, calls, checkpoints, garbage collection, and the program's own code.
 */
export const timeShares = [
  'compute',
  'bubble',
  'imbalance',
  'communication',
  'input',
  'overhead',
] as const
export type TimeShare = (typeof timeShares)[number]

/** Milliseconds of a step, of each part. */
export type TimeShares = Readonly<Record<TimeShare, number>>

/** Short names of the shares. */
export const shareTitles: Readonly<Record<TimeShare, string>> = {
  compute: 'compute',
  bubble: 'bubble',
  imbalance: 'imbalance',
  communication: 'exposed',
  input: 'input',
  overhead: 'overhead',
}

/** What counts as which. */
export const shareOfPart: Readonly<Record<Exclude<StepPart, 'waiting'>, TimeShare>> = {
  input: 'input',
  batch: 'input',
  forward: 'compute',
  backward: 'compute',
  update: 'compute',
  transfer: 'communication',
  alloc: 'overhead',
  pack: 'overhead',
  call: 'overhead',
  wakeUp: 'overhead',
  reduce: 'overhead',
  unpack: 'overhead',
  checkpoint: 'overhead',
  gc: 'overhead',
  unexplained: 'overhead',
}

/**
 * Milliseconds of each share of a step.
 *
 * @param idle - of the waiting, what the schedule of a pipeline has in itself
 */
export function sharesOf(pieces: readonly Piece[], idle: number): Record<TimeShare, number> {
  const shares = Object.fromEntries(timeShares.map((share) => [share, 0])) as Record<
    TimeShare,
    number
  >
  let waiting = 0
  for (const { part, start, end } of pieces) {
    if (part === 'waiting') waiting += end - start
    else shares[shareOfPart[part]] += end - start
  }
  shares.bubble = Math.min(waiting, idle)
  shares.imbalance = waiting - shares.bubble
  return shares
}
