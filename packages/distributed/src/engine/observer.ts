import type { TsrError } from '@tsrun/core'
import type { EngineGroup } from './group.ts'
import type { StreamAddress } from './messages/frame.ts'
import type { Link } from './messages/link.ts'
import type { Task } from './task.ts'

/** The engine's state for its observer. The engine owns all of it. */
export interface ObservedEngine {
  readonly groups: ReadonlyMap<number, EngineGroup>
  readonly running: ReadonlySet<Task>
  /** By world rank; undefined for this rank. */
  readonly links: readonly (Link | undefined)[]
}

/** Records the work of an engine. The engine does not depend on it. */
export interface EngineObserver {
  /** Called when the engine accepts an operation. */
  onStart(task: Task): void
  /** Called when an operation has ended, before its transfers are cancelled. */
  onSettled(task: Task): void
  /** Called when an operation or a group has failed, after all dependent failures. */
  onFailure(error: TsrError): void
  /** Called for a notice of another rank; see `Link.sendNotice`. */
  onNotice(link: Link, address: StreamAddress, payload: Uint8Array): void
  /** Called periodically while operations run. */
  look(now: number): void
  /** Returns where a rank called a collective, if known. */
  siteOf(group: number, sequence: number, rank: number): string | undefined
  /** The rank because of which the job ends, as the launcher reports. */
  readonly abortedBy: number | undefined
}
