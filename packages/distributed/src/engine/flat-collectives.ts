import { monotonicNow } from '@tsrun/core'
import { flatAlgorithm, flatBytes, type Round } from '../algorithms/flat.ts'
import type { Transport } from '../transports/transport.ts'
import type { Board } from './board.ts'
import { until, type Channel } from './channel.ts'
import type { Failures } from './failures.ts'
import { spaces } from './frame.ts'
import { hasLeft, type EngineGroup } from './group.ts'
import type { Link } from './link.ts'
import { rooted, sameFingerprint, type Fingerprint, type Operation } from './operation.ts'
import { peerError } from './task-errors.ts'
import type { Steps, Task, Waited } from './task.ts'
import type { TransportCollectives } from './transport-collectives.ts'

interface FlatOptions {
  readonly board: Board
  /** World rank. */
  readonly rank: number
  readonly links: readonly (Link | undefined)[]
  readonly failures: Pick<Failures, 'onMismatch'>
}

/** On the transport's board, if it has one. */
export function openFlatCollectives(
  { rank, links }: Pick<FlatOptions, 'rank' | 'links'>,
  transport: Transport | undefined,
  failures: FlatOptions['failures'],
): FlatCollectives | undefined {
  const board = transport?.board
  return board && new FlatCollectives({ board, rank, links, failures })
}

/** The turns of a group. They are taken in the order of calls, one at a time. */
interface Lane {
  readonly index: number
  /** Turns that were given to operations. */
  given: number
  /** Turns that are over. */
  over: number
  /** The task of the turn before, when it may have ended without seeing what all others run. */
  unchecked: Task | undefined
}

/** Something that is looked for, again and again. */
interface Watch extends Waited {
  readonly task: Task
  done: boolean
  readonly missing: () => number[]
  readonly isMet: () => boolean
}

const nobody = (): number[] => []

/**
 * Runs small collectives on boards. The first groups of a world have a lane each, for good: ids of
 * groups are given once, so no lane ever changes hands.
 *
 * A slot is written again two turns later. A rank begins a turn when all others have begun the one
 * before; who has begun it has read all of the one before that.
 */
class FlatCollectives implements TransportCollectives {
  readonly #options: FlatOptions
  readonly #lanes: Lane[]
  #watches: Watch[] = []

  constructor(options: FlatOptions) {
    this.#options = options
    this.#lanes = Array.from({ length: options.board.lanes }, (_, index) => ({
      index,
      given: 0,
      over: 0,
      unchecked: undefined,
    }))
  }

  take(operation: Operation, group: EngineGroup): Operation | undefined {
    const { board, rank } = this.#options
    const { algorithm, isReserved } = operation
    const { id, layout, ranks } = group
    if (algorithm !== 'auto' || isReserved || id >= board.lanes || layout !== 'together') {
      return undefined
    }
    const bytes = flatBytes(operation, ranks.length)
    if (bytes === undefined || bytes > board.slotBytes) return undefined
    if (!ranks.every((peer) => peer === rank || board.reaches(peer))) return undefined
    return { ...operation, algorithm: 'flat' }
  }

  *run(channel: Channel, task: Task): Steps {
    const { operation, group } = task
    const lane = this.#lanes[group.id]!
    const turn = (lane.given = (lane.given + 1) | 0)
    yield* flatAlgorithm(operation, this.#roundOf(task, lane, turn))(channel, operation)
    lane.over = turn
    lane.unchecked = rooted.has(operation.name) ? task : undefined
  }

  progress(wake: (task: Task, waited: Waited) => void): boolean {
    if (this.#watches.length === 0) return false
    const watches = this.#watches
    this.#watches = []
    let moved = false
    for (const watch of watches) {
      if (watch.task.state !== 'running') continue
      if (watch.isMet()) {
        moved = true
        watch.done = true
        wake(watch.task, watch)
      } else {
        this.#watches.push(watch)
      }
    }
    return moved
  }

  #roundOf(task: Task, lane: Lane, turn: number): Round {
    const { board, rank: self } = this.#options
    const { group, operation, fingerprint } = task
    const { ranks } = group
    const notice = { sequence: operation.sequence, fingerprint }

    const hasBegun = (peer: number, which: number): boolean =>
      peer === self || ((board.turnOf(peer, lane.index) - which) | 0) >= 0
    /** Not where it runs another collective: that is found by asking it. */
    const hasArrived = (peer: number): boolean => {
      if (peer === self) return true
      if (!hasBegun(peer, turn)) return false
      const theirs = board.noticeOf(peer, lane.index, turn)
      if (theirs.sequence !== operation.sequence) return false
      if (sameFingerprint(theirs.fingerprint, fingerprint)) return true
      if (task.state === 'running') this.#onMismatch(task, peer, theirs.fingerprint)
      return false
    }
    const waitFor = (peers: readonly number[], isThere: (peer: number) => boolean): Steps =>
      this.#waitUntil(task, {
        missing: () => peers.filter((peer) => !isThere(peer)),
        isMet: () => peers.every(isThere),
      })
    const compareBefore = (): void => {
      if (lane.unchecked !== undefined) this.#compare(lane.unchecked, lane.index, (turn - 1) | 0)
    }
    const waitUntil = (isMet: () => boolean): Steps =>
      this.#waitUntil(task, { missing: nobody, isMet })

    return {
      *layOut(at, bytes) {
        const before = (turn - 1) | 0
        if (lane.over !== before) yield* waitUntil(() => lane.over === before)
        yield* waitFor(ranks, (peer) => hasBegun(peer, before))
        compareBefore()
        if (task.started === 0) task.started = monotonicNow()
        board.layOut(lane.index, turn, notice, at, bytes)
      },
      *arrivalOf(members) {
        yield* waitFor(
          members.map((member) => ranks[member]!),
          hasArrived,
        )
      },
      slotOf: (member) => board.slotOf(ranks[member]!, lane.index, turn),
    }
  }

  /** Finds who runs something else: they have begun the turn, and none is over the next. */
  #compare(task: Task, lane: number, turn: number): void {
    const { board, rank } = this.#options
    for (const peer of task.group.ranks) {
      if (peer === rank) continue
      const { sequence, fingerprint } = board.noticeOf(peer, lane, turn)
      const isSame = sequence === task.operation.sequence
      if (isSame && !sameFingerprint(fingerprint, task.fingerprint)) {
        this.#onMismatch(task, peer, fingerprint)
        return
      }
    }
  }

  #onMismatch({ group, operation }: Task, peer: number, theirs: Fingerprint): void {
    const { links, failures } = this.#options
    const stream = links[peer]!.stream(spaces.collective, group.id, operation.sequence)
    failures.onMismatch(stream, theirs, undefined)
  }

  *#waitUntil(task: Task, { missing, isMet }: Pick<Watch, 'missing' | 'isMet'>): Steps {
    if (isMet()) return
    const { links, rank } = this.#options
    for (const peer of missing()) {
      const link = links[peer]
      if (link !== undefined && hasLeft(task.group, link)) throw peerError(task, link, rank)
    }
    const watch: Watch = { task, missing, isMet, done: false }
    this.#watches.push(watch)
    yield* until(watch)
  }
}
