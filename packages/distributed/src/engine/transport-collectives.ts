import type { Channel } from './channel.ts'
import type { EngineGroup } from './group.ts'
import type { Operation } from './operation.ts'
import type { Resumable, Task, Waited } from './task.ts'

/** Collectives that run on something of the transport's own, instead of on messages. */
export interface TransportCollectives {
  /**
   * The operation with the algorithm of theirs that runs it; undefined where they cannot. The same
   * answer on all ranks of the group.
   */
  take(operation: Operation, group: EngineGroup): Operation | undefined
  /** The body of the operation; it takes its place in their order when it is resumed first. */
  run(task: Task, openChannel: () => Channel): Resumable
  /** Looks at what is under way, and wakes the tasks that wait for what is done. */
  progress(wake: (task: Task, waited: Waited) => void): boolean
  removeGroup?(id: number): void
}
