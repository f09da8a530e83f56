import type { TsrError } from '@tsrun/core'
import type { EngineGroup } from './group.ts'
import type { StreamAddress } from './messages/frame.ts'
import type { Link } from './messages/link.ts'
import type { Task } from './task.ts'

/** What an engine shows its observer. The engine owns all of it. */
export interface ObservedEngine {
  readonly groups: ReadonlyMap<number, EngineGroup>
  readonly running: ReadonlySet<Task>
  /** By world rank; undefined for this rank. */
  readonly links: readonly (Link | undefined)[]
}

/** Records what an engine does. The engine works the same without it. */
export interface EngineObserver {
  /** The engine has taken an operation. */
  onStart(task: Task): void
  /** An operation has ended. Its transfers are not cancelled yet. */
  onSettled(task: Task): void
  /** An operation or a group has failed, and everything that fails with it. */
  onFailure(error: TsrError): void
  /** The observer of another rank says something: see `Link.sendNotice`. */
  onNotice(link: Link, address: StreamAddress, payload: Uint8Array): void
  /** Called periodically while operations run. */
  look(now: number): void
  /** Where a rank called a collective, if that is known. */
  siteOf(group: number, sequence: number, rank: number): string | undefined
  /** The rank whose end ends the job, as the launcher says. */
  readonly abortedBy: number | undefined
}
