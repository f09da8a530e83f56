import type { Piece, StepPart } from './division.ts'

/**
 * Classifies the time of steps. `bubble` is the waiting inherent in the schedule of a pipeline while it
 * fills and drains. `imbalance` is any other waiting for late ranks. `communication` is the transfer
 * time that computation does not hide. `overhead` is everything else: copies into and out of buffers,
 * calls, checkpoints, garbage collection, and the program's own code.
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

/** Milliseconds of each share in a step. */
export type TimeShares = Readonly<Record<TimeShare, number>>

/** The share that each part counts as. */
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

/** Makes an object with a number for each share. */
export function sharesFrom(of: (share: TimeShare) => number): Record<TimeShare, number> {
  return Object.fromEntries(timeShares.map((share) => [share, of(share)])) as never
}

/**
 * Returns the milliseconds of each share in a step.
 *
 * @param idle - milliseconds of waiting inherent in the pipeline schedule
 */
export function sharesOf(pieces: readonly Piece[], idle: number): Record<TimeShare, number> {
  const shares = sharesFrom(() => 0)
  let waiting = 0
  for (const { part, start, end } of pieces) {
    if (part === 'waiting') waiting += end - start
    else shares[shareOfPart[part]] += end - start
  }
  shares.bubble = Math.min(waiting, idle)
  shares.imbalance = waiting - shares.bubble
  return shares
}
