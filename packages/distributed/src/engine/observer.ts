import type { TsrError } from '@tsrun/core'
import type { EngineGroup } from './group.ts'
import type { StreamAddress } from './messages/frame.ts'
import type { Link } from './messages/link.ts'
import type { Task } from './task.ts'

/** The state of the engine that an observer may read. */
export interface ObservedEngine {
  readonly groups: ReadonlyMap<number, EngineGroup>
  readonly running: ReadonlySet<Task>
  /** The link to each world rank; undefined for this rank. */
  readonly links: readonly (Link | undefined)[]
}

/** Records the events of an engine. The engine behaves the same without an observer. */
export interface EngineObserver {
  /** Called when the engine accepts an operation. */
  onStart(task: Task): void
  /** Called when an operation has ended, before its pending transfers are cancelled. */
  onSettled(task: Task): void
  /** Called when an operation or a group has failed, after all failures that follow from it. */
  onFailure(error: TsrError): void
  /** Called for a notice from another rank, which `Link.sendNotice` has sent. */
  onNotice(link: Link, address: StreamAddress, payload: Uint8Array): void
  /** Called periodically while operations run. */
  look(now: number): void
  /** Returns the line at which a rank called a collective, if known. */
  siteOf(group: number, sequence: number, rank: number): string | undefined
  /** The rank whose end stops the job, as the launcher reports; undefined while the job runs. */
  abortedBy(): number | undefined
}
