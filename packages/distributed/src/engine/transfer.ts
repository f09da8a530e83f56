import type { Message } from '../algorithms/channel.ts'
import type { Fingerprint } from '../operation.ts'
import type { Stream } from './stream.ts'
import type { Task } from './task.ts'

/** One message under way in one direction: a generator yields it to wait for it. */
export interface Transfer extends Message {
  readonly task: Task
  readonly stream: Stream
  /** Position among the stream's messages in this direction. */
  index: number
  readonly fingerprint: Fingerprint
  done: boolean
  /** The operation failed: a payload that still comes is thrown away. */
  cancelled: boolean
}
