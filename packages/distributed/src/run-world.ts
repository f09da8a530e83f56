import {
  anything,
  callback,
  count,
  declareOptions,
  distanceFromCause,
  finite,
  monotonicNow,
  positive,
  where,
  type Rules,
} from '@tsrun/core'
import { memoryStore } from '@tsrun/store'
import type { MessageListener } from './engine/message-tap.ts'
import { createWorldGroup } from './groups/group.ts'
import type { ProcessGroup } from './process-group.ts'
import type { FailedWorld } from './record/flight-records.ts'
import { inProcessWorld } from './runners/in-process-world.ts'
import type { FaultSource } from './runners/world-faults.ts'

/** The error that the program of a rank has thrown. */
export interface RankError {
  readonly rank: number
  readonly error: unknown
}

type ErrorsListener = (errors: readonly RankError[], world: FailedWorld) => void

/** Options of `runWorld`. */
export interface WorldOptions {
  /** Number of ranks. */
  readonly size: number
  /** Seed for the order in which ranks run. The same seed gives the same run. Default 0. */
  readonly seed?: number
  /** Default time-out of operations in milliseconds; default 10 minutes. */
  readonly timeout?: number
  /** Bytes of each rank's arena and engine memory; default 64 MiB. */
  readonly memory?: number
  /**
   * The host number of each rank. Ranks of one host copy large messages directly from heap to heap.
   * Default: each rank is on a separate host.
   */
  readonly hosts?: readonly number[]
  /**
   * Faults to inject, or a function to call before the first round. Its argument `inject` injects a fault
   * at any time, and throws ERR_TSR_ARGUMENT for an invalid fault. Default: none.
   */
  readonly faults?: FaultSource
  /**
   * Called for each message when a rank sends it, and when a rank has received it. It must not throw.
   * Collectives of ranks on one host may send no messages.
   */
  readonly onMessage?: MessageListener
  /**
   * Called before `runWorld` rejects, with the error of each rank that failed. The errors are sorted by
   * cause: `runWorld` rejects with the first. `world` is for `worldReport` of `@tsrun/launcher/report`.
   */
  readonly onErrors?: ErrorsListener
}

const readOptions = declareOptions({
  size: count({ from: 1 }),
  seed: finite().default(0),
  timeout: positive('milliseconds above 0').default(600_000),
  memory: count({ from: 1 }).default(64 * 1024 * 1024),
  hosts: anything<readonly number[]>(),
  faults: where<FaultSource>(
    (value) => Array.isArray(value) || typeof value === 'function',
    'a list of faults or a function',
  ).default([]),
  onMessage: callback<MessageListener>('a function of a message').optional(),
  onErrors: callback<ErrorsListener>('a function of errors').optional(),
} satisfies Rules<WorldOptions>)

/**
 * Runs `program` as every rank of a world within this thread, over in-memory transports with a
 * seeded scheduler. Resolves to the results of the programs, in rank order. Use it for tests, and
 * to try a parallel program without processes. Only asynchronous calls work.
 *
 * @example
 * const sums = await runWorld({ size: 4, seed: 1 }, async (group) => {
 *   const buffer = Float32Array.of(group.rank)
 *   await group.allReduce(buffer)
 *   return buffer[0] // 6 on every rank
 * })
 *
 * @throws the first cause among the errors of the programs; ERR_TSR_DEADLOCK if all ranks wait forever;
 *   ERR_TSR_ARGUMENT
 */
export async function runWorld<T>(
  options: WorldOptions,
  program: (group: ProcessGroup) => Promise<T>,
): Promise<T[]> {
  const { timeout, onErrors, ...world } = readOptions(options)
  const startedAt = monotonicNow()
  const { runners, run } = inProcessWorld(world)
  const store = memoryStore()
  const programs = runners.map((runner, rank) =>
    program(createWorldGroup({ rank, worldSize: world.size, runner, store, timeout })),
  )
  const ends = await run(programs)
  // Errors that no other rank caused come first. Errors of the same kind stay in order of time.
  const errors = ends
    .flatMap((end) => ('error' in end ? [{ rank: end.rank, error: end.error }] : []))
    .sort((a, b) => distanceFromCause(a.error) - distanceFromCause(b.error))
  if (errors.length === 0) return await Promise.all(programs)
  const inRankOrder = ends.toSorted((a, b) => a.rank - b.rank)
  onErrors?.(errors, {
    startedAt,
    ends: inRankOrder,
    records: runners.map(({ journal }) => journal.read('end of the world')),
  })
  return await Promise.reject<T[]>(errors[0]!.error)
}
