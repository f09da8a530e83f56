import { findAlgorithm } from '../algorithms/select.ts'
import type { Channel, Resumable } from '../algorithms/channel.ts'
import type { Engine } from './engine.ts'
import { isWithoutMessages } from '../operation.ts'
import { createChannel } from './task-channel.ts'
import type { Task } from './task.ts'
import type { TransportCollectives } from '../transports/transport-collectives.ts'

/** The body of a task: an algorithm on messages, or what the transport has instead. */
export function stepsOf(
  engine: Engine,
  task: Task,
  instead: TransportCollectives | undefined,
): Resumable {
  const { operation, group } = task
  const openChannel = (): Channel => createChannel(engine, task)
  if (instead !== undefined && isWithoutMessages(operation)) return instead.run(task, openChannel)
  return findAlgorithm(operation, group.ranks.length)(openChannel(), operation)
}
