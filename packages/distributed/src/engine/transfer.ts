import type { Fingerprint } from './operation.ts'
import type { Stream } from './stream.ts'
import type { Task } from './task.ts'

/** One message under way in one direction: a generator yields it to wait for it. */
export interface Transfer {
  readonly task: Task
  readonly stream: Stream
  /** Position among the stream's messages in this direction. */
  index: number
  /** Offset in the heap of the bytes to send, or of the place to receive them. */
  readonly at: number
  readonly bytes: number
  readonly fingerprint: Fingerprint
  done: boolean
  /** The operation failed: a payload that still comes is thrown away. */
  cancelled: boolean
}
