import { runWorld, type ProcessGroup } from '@tsrun/training/browser'
import type { LinkCosts } from './collective.ts'

export const SIZES = [4, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20]

/** The time of a message of a size. */
export interface MessageTime {
  readonly bytes: number
  readonly milliseconds: number
}

/** Milliseconds that each size is measured, so that the coarse clock of a page does not matter. */
const PATIENCE = 60

type OnMeasured = (time: MessageTime) => unknown

/** Measures messages between two ranks in this thread. */
export async function pingPong(onMeasured: OnMeasured): Promise<void> {
  await runWorld({ size: 2, memory: 16 << 20 }, (group) => measureRank(group, onMeasured))
}

/**
 * The program of two ranks that send messages back and forth. Half of a round trip is the time of a
 * message. Rank 0 calls `onMeasured` for each size, and waits for its result.
 */
export async function measureRank(group: ProcessGroup, onMeasured: OnMeasured): Promise<void> {
  const other = 1 - group.rank
  // The first messages are slower, so they are not reported.
  for (const [index, bytes] of [SIZES[0]!, ...SIZES].entries()) {
    const buffer = group.alloc('uint8', bytes)
    for (let repeats = 4; ; repeats *= 4) {
      const start = performance.now()
      for (let i = 0; i < repeats; i++) {
        if (group.rank === 0) await group.send(buffer, other)
        await group.recv(buffer, other)
        if (group.rank === 1) await group.send(buffer, other)
      }
      const elapsed = performance.now() - start
      if (!(await group.broadcastObject(elapsed < PATIENCE, 0))) {
        if (group.rank === 0 && index > 0) {
          await onMeasured({ bytes, milliseconds: elapsed / repeats / 2 })
        }
        break
      }
    }
    group.free(buffer)
  }
}

/** The latency of the smallest message, and the bandwidth of the largest. */
export function fitCosts(times: readonly MessageTime[]): LinkCosts {
  const latency = Math.min(...times.map(({ milliseconds }) => milliseconds))
  const { bytes, milliseconds } = times.at(-1)!
  return { latency, bandwidth: bytes / 1e6 / Math.max(milliseconds - latency, 1e-6) }
}
