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

/** The share to which each part is added. `waiting` is split into `bubble` and `imbalance`. */
export const shareOfPart = {
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
} as const satisfies Readonly<Record<string, TimeShare>>

/**
 * A part of a rank's time. Each instant belongs to a span of the main thread or, if there is none,
 * to the operation that the rank waits for. `reduce` is arithmetic of the main thread on buffers.
 * `waiting` lasts until the peers of an operation have arrived, and `transfer` from then until the
 * operation ends. `wakeUp` lasts from the end of the operation until the main thread resumes.
 */
export type StepPart = keyof typeof shareOfPart | 'waiting'

/** Makes an object with a number for each share. */
export function sharesFrom(of: (share: TimeShare) => number): Record<TimeShare, number> {
  return Object.fromEntries(timeShares.map((share) => [share, of(share)])) as never
}
