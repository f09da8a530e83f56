import { findAlgorithm } from '../algorithms/select.ts'
import type { Engine } from './engine.ts'
import type { NativeCollectives } from './native-collectives.ts'
import { isNative } from './operation.ts'
import { createChannel } from './task-channel.ts'
import type { Steps, Task } from './task.ts'

/** The body of a task: an algorithm of ours, or what the library behind the transport does. */
export function stepsOf(engine: Engine, task: Task, native: NativeCollectives | undefined): Steps {
  const { operation, group } = task
  const channel = createChannel(engine, task)
  if (native !== undefined && isNative(operation)) return native.run(channel, task)
  return findAlgorithm(operation, group.ranks.length)(channel, operation)
}
