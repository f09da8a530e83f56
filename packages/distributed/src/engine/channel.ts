import type { Heap } from '../arena/heap.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { Transfer } from './transfer.ts'

/** What an algorithm sees of the engine: its group, messages within its operation, and scratch. */
export interface Channel {
  /** Rank of this process in the group. */
  readonly rank: number
  readonly size: number
  readonly heap: Heap
  readonly kernels: Kernels
  /** Starts to send `bytes` bytes at offset `at` to a rank of the group. */
  send(to: number, at: number, bytes: number): Transfer
  /** Starts to receive; messages between two ranks match in the order of their calls. */
  receive(from: number, at: number, bytes: number): Transfer
  /** Throws the next message from a rank away, whatever it is. */
  skip(from: number): void
  /** Offset of engine memory that lives until the operation ends. */
  scratch(bytes: number): number
}

/** Waits until a transfer is done: `yield* until(transfer)`. */
export function* until(transfer: Transfer): Generator<Transfer, void, void> {
  while (!transfer.done) yield transfer
}

/** Waits until all are done. */
export function* untilAll(transfers: readonly Transfer[]): Generator<Transfer, void, void> {
  for (const transfer of transfers) yield* until(transfer)
}
