import { monotonicNow } from '@tsrun/core'
import { ALL, NOBODY, planOf, type FlatPlan, type FlatRound } from '../algorithms/flat.ts'
import { dtypes } from '../dtype.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { Board, Notice } from '../transports/board.ts'
import { reducing, rooted, sameFingerprint, type Fingerprint } from '../operation.ts'
import type { Resumable, Waited } from '../algorithms/channel.ts'
import type { RunningOperation } from '../transports/transport-collectives.ts'

/** The turns of a group. They are taken in the order of calls, one at a time. */
export interface Lane {
  readonly index: number
  /** The last turn that was given to an operation. Turns are modulo 2^32. */
  given: number
  /** The last turn that is over. */
  over: number
  /** The task of the turn before, when it may have ended without seeing what all others run. */
  unchecked: RunningOperation | undefined
}

/** What a run needs of where it runs. */
export interface FlatContext {
  readonly board: Board
  /** World rank. */
  readonly rank: number
  readonly kernels: Kernels
  /** Called when it has to wait. */
  readonly onWait: (run: FlatRun) => void
  readonly onMismatch: (peer: number, group: number, sequence: number, theirs: Fingerprint) => void
}

const FINISHED = { done: true, value: undefined } as const

/**
 * One operation on the boards. A slot is written again two turns later: a rank begins a turn when
 * all others have begun the one before; who has begun it has read all of the one before that.
 */
export class FlatRun implements Resumable, Waited, FlatRound {
  readonly task: RunningOperation
  readonly rank: number
  readonly size: number
  readonly kernels: Kernels
  readonly slotOf: (rank: number) => number
  readonly #context: FlatContext
  readonly #lane: Lane
  readonly #turn: number
  readonly #notice: Notice
  readonly #plan: FlatPlan
  #isShown = false

  constructor(context: FlatContext, task: RunningOperation, lane: Lane) {
    const { group, operation, fingerprint } = task
    const { board, kernels } = context
    this.task = task
    this.rank = group.rank
    this.size = group.ranks.length
    this.kernels = kernels
    this.#context = context
    this.#lane = lane
    this.#turn = lane.given = (lane.given + 1) | 0
    this.#notice = { sequence: operation.sequence, fingerprint }
    this.#plan = planOf(operation, this.rank, this.size)
    this.slotOf = (member) => board.slotOf(group.ranks[member]!, lane.index, this.#turn)
  }

  /** Whether it can go on; finds who runs something else. */
  get done(): boolean {
    if (!this.#isShown && this.#lane.over !== this.#before) return false
    for (const peer of this.task.group.ranks) if (!this.#isThere(peer)) return false
    return true
  }

  /** World ranks. */
  missing(): number[] {
    return this.task.group.ranks.filter((peer) => !this.#isThere(peer))
  }

  next(): IteratorResult<Waited, void> {
    if (!this.#isShown) {
      if (!this.done) return this.#wait()
      this.#show()
    }
    if (!this.done) return this.#wait()
    const { take, bytes } = this.#plan
    const { operation } = this.task
    take?.(this, operation, bytes)
    this.#lane.over = this.#turn
    this.#lane.unchecked = rooted.has(operation.name) ? this.task : undefined
    return FINISHED
  }

  get #before(): number {
    return (this.#turn - 1) | 0
  }

  #wait(): IteratorResult<Waited, void> {
    this.#context.onWait(this)
    return { done: false, value: this }
  }

  /** Before it lays out: whether a rank has begun the turn before; after: what it waits for. */
  #isThere(peer: number): boolean {
    const { rank, board } = this.#context
    if (peer === rank) return true
    if (!this.#isShown) return ((board.turnOf(peer, this.#lane.index) - this.#before) | 0) >= 0
    const { awaited } = this.#plan
    if (awaited === NOBODY) return true
    if (awaited !== ALL && this.task.group.ranks[awaited] !== peer) return true
    return this.#hasArrived(peer)
  }

  /** Not where it runs another collective: that is found by asking it. */
  #hasArrived(peer: number): boolean {
    const { board, onMismatch } = this.#context
    const { task } = this
    const lane = this.#lane.index
    if (((board.turnOf(peer, lane) - this.#turn) | 0) < 0) return false
    if (board.shows(peer, lane, this.#turn, this.#notice)) return true
    const { sequence, fingerprint } = board.noticeOf(peer, lane, this.#turn)
    const isOdd = sequence === task.operation.sequence
    if (isOdd && task.state === 'running') {
      onMismatch(peer, task.group.id, sequence, fingerprint)
    }
    return false
  }

  #show(): void {
    const { board, kernels } = this.#context
    const { operation } = this.task
    const { name, reduction, dtype, input, factor } = operation
    const { shown } = this.#plan
    if (this.#lane.unchecked !== undefined) this.#compare(this.#lane.unchecked)
    if (this.task.started === 0) this.task.started = monotonicNow()
    if (reduction === 'premulSum' && reducing.has(name)) {
      kernels.scale(dtype, input, shown / dtypes[dtype].bytes, factor)
    }
    board.layOut(this.#lane.index, this.#turn, this.#notice, input, shown)
    this.#isShown = true
  }

  /** Finds who runs something else: all have begun the turn before, and none is over this one. */
  #compare(before: RunningOperation): void {
    const { board, rank, onMismatch } = this.#context
    for (const peer of before.group.ranks) {
      if (peer === rank) continue
      const { sequence, fingerprint } = board.noticeOf(peer, this.#lane.index, this.#before)
      const isSame = sequence === before.operation.sequence
      if (isSame && !sameFingerprint(fingerprint, before.fingerprint)) {
        onMismatch(peer, before.group.id, sequence, fingerprint)
        return
      }
    }
  }
}
