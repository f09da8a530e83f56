import type { MatchedReceive } from '../algorithms/channel.ts'
import { spaces } from './frame.ts'
import { hasLeft } from './group.ts'
import type { Link } from './link.ts'
import { ANY_SOURCE } from '../operation.ts'
import { streamKey, type Stream } from './stream.ts'
import type { Task } from './task.ts'
import type { Transfer } from './transfer.ts'

/** The place of a receive among those of its tag. Done when it has a source. */
export interface Turn extends MatchedReceive {
  readonly task: Task
  /** Group rank, or ANY_SOURCE. */
  readonly from: number
  readonly begin: (source: number) => Transfer
  done: boolean
  /** Group rank that the message comes from. */
  source: number
  message: Transfer | undefined
}

export interface TurnEvents {
  onTurn(task: Task, turn: Turn): void
  onFailed(task: Task, cause: unknown): void
  /** All ranks that the message could come from are gone; `link` led to the last. */
  onDeserted(task: Task, link: Link): void
}

/**
 * Receives from any source, matched above the links: such a receive takes the first message of its
 * tag that has come, or was announced, and that no receive has claimed. Receives that are called
 * after it on the same tag wait behind it, so that messages go to receives in the order of the calls.
 */
export class Turns {
  readonly #links: readonly (Link | undefined)[]
  readonly #events: TurnEvents
  /** Receives without a source, by group and tag; a queue begins with one of any source. */
  readonly #queues = new Map<number, Turn[]>()

  constructor(links: readonly (Link | undefined)[], events: TurnEvents) {
    this.#links = links
    this.#events = events
  }

  /** `begin` starts the receive, now or when its turn has come. */
  take(task: Task, from: number, begin: (source: number) => Transfer): Turn {
    const key = keyOf(task)
    const turn: Turn = { task, from, begin, done: false, source: from, message: undefined }
    const queue = this.#queues.get(key)
    if (queue === undefined && from !== ANY_SOURCE) {
      turn.message = begin(from)
      turn.done = true
      return turn
    }
    if (queue === undefined) this.#queues.set(key, [turn])
    else queue.push(turn)
    this.#serve(key)
    if (!turn.done) this.#checkDeserted(turn)
    return turn
  }

  /** A message came, or was announced, that nobody has claimed. */
  onArrival({ space, key }: Stream): void {
    if (space === spaces.message && this.#queues.has(key)) this.#serve(key)
  }

  onClosed(link: Link): void {
    for (const queue of [...this.#queues.values()]) {
      for (const turn of [...queue]) {
        if (turn.task.group.ranks.includes(link.peer)) this.#checkDeserted(turn)
      }
    }
  }

  /** The operation has ended. */
  forget(task: Task): void {
    if (this.#queues.size === 0) return
    const key = keyOf(task)
    const queue = this.#queues.get(key)
    const place = queue?.findIndex((turn) => turn.task === task) ?? -1
    if (queue === undefined || place < 0) return
    queue.splice(place, 1)
    this.#serve(key)
  }

  /** Gives sources to the receives that can have one, in the order of their calls. */
  #serve(key: number): void {
    const queue = this.#queues.get(key)
    if (queue === undefined) return
    let isBehind = false
    for (const turn of [...queue]) {
      const source =
        turn.from === ANY_SOURCE ? this.#findSource(turn, key) : isBehind ? undefined : turn.from
      if (source === undefined) isBehind = true
      else if (queue.includes(turn)) {
        queue.splice(queue.indexOf(turn), 1)
        this.#begin(turn, source)
      }
    }
    if (queue.length === 0) this.#queues.delete(key)
  }

  #begin(turn: Turn, source: number): void {
    turn.source = source
    turn.done = true
    try {
      turn.message = turn.begin(source)
      this.#events.onTurn(turn.task, turn)
    } catch (cause) {
      this.#events.onFailed(turn.task, cause)
    }
  }

  /** A rank whose next message waits; after the own rank first, so that none is always first. */
  #findSource({ task }: Turn, key: number): number | undefined {
    const { rank, ranks } = task.group
    for (let distance = 1; distance < ranks.length; distance++) {
      const source = (rank + distance) % ranks.length
      const stream = this.#links[ranks[source]!]?.streams.get(key)
      if (stream?.unexpected.some(({ index }) => index === stream.nextReceive) === true) {
        return source
      }
    }
    return undefined
  }

  #checkDeserted({ task, from, done }: Turn): void {
    const { rank, ranks } = task.group
    const sources = from === ANY_SOURCE ? ranks.filter((_, peer) => peer !== rank) : [ranks[from]!]
    const links = sources.map((source) => this.#links[source])
    const last = links.at(-1)
    if (
      !done &&
      last !== undefined &&
      links.every((link) => link !== undefined && hasLeft(task.group, link))
    ) {
      this.#events.onDeserted(task, last)
    }
  }
}

function keyOf({ group, operation }: Task): number {
  return streamKey(spaces.message, group.id, operation.tag)
}
