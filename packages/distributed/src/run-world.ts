import { anything, count, declareOptions, finite, positive, where, type Rules } from '@tsrun/core'
import { memoryStore } from '@tsrun/store'
import { createWorldGroup } from './groups/group.ts'
import type { ProcessGroup } from './process-group.ts'
import { InProcessWorld } from './runners/in-process-world.ts'
import type { WorldFault } from './runners/world-faults.ts'

export interface WorldOptions {
  /** Number of ranks. */
  readonly size: number
  /** Chooses the interleaving: the same seed gives the same run. Default 0. */
  readonly seed?: number
  /** Default time-out of operations in milliseconds; default 10 minutes. */
  readonly timeout?: number
  /** Bytes of each rank's arena and engine memory; default 64 MiB. */
  readonly memory?: number
  /**
   * By rank: which host it is on; between ranks of one host large messages are copied straight from
   * heap to heap. Default: each on a host of its own.
   */
  readonly hosts?: readonly number[]
  /** Faults on purpose, to see what a program makes of them. Default: none. */
  readonly faults?: readonly WorldFault[]
}

const readOptions = declareOptions({
  size: count({ from: 1 }),
  seed: finite().default(0),
  timeout: positive('milliseconds above 0').default(600_000),
  memory: count({ from: 1 }).default(64 * 1024 * 1024),
  hosts: anything<readonly number[]>(),
  faults: where<readonly WorldFault[]>(Array.isArray, 'a list of faults').default([]),
} satisfies Rules<WorldOptions>)

/**
 * Runs `program` as every rank of a world within this thread, over in-memory transports with a
 * seeded scheduler; resolves to the ranks' results. For tests, and to try a parallel program without
 * processes. Only the asynchronous calls work.
 *
 * @example
 * const sums = await runWorld({ size: 4, seed: 1 }, async (group) => {
 *   const buffer = Float32Array.of(group.rank)
 *   await group.allReduce(buffer)
 *   return buffer[0] // 6 on every rank
 * })
 *
 * @throws what the first failing program throws; ERR_TSR_DEADLOCK when all ranks wait for good;
 *   ERR_TSR_ARGUMENT
 */
export async function runWorld<T>(
  options: WorldOptions,
  program: (group: ProcessGroup) => Promise<T>,
): Promise<T[]> {
  const { timeout, ...world } = readOptions(options)
  const inProcess = new InProcessWorld(world)
  const store = memoryStore()
  const programs = inProcess.runners.map((runner, rank) =>
    program(createWorldGroup({ rank, worldSize: world.size, runner, store, timeout })),
  )
  return await inProcess.run(programs)
}
