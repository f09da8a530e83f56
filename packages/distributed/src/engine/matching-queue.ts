import type { MatchedReceive } from '../algorithms/channel.ts'
import { ANY_SOURCE } from '../operation.ts'
import { hasDeparted } from './group.ts'
import { spaces } from './messages/frame.ts'
import type { Link } from './messages/link.ts'
import { streamKey, type Stream, type Transfer } from './messages/stream.ts'
import { peerError, thrownError } from './task-errors.ts'
import type { Task } from './task.ts'

/** A receive in the queue of its tag. It leaves the queue once its source is known. */
interface PostedReceive extends MatchedReceive {
  readonly task: Task
  /** Group rank of the source, or ANY_SOURCE. */
  readonly from: number
  readonly begin: (source: number) => Transfer
  done: boolean
  source: number
  message: Transfer | undefined
}

export type MatchingQueues = ReturnType<typeof createMatching>

/**
 * Matches receives from any source, across links. A receive from any source takes the first
 * unclaimed message of its tag that has arrived, or that a request to send has announced. Later
 * receives on the same tag wait for it, so that messages match receives in call order.
 */
export function createMatching(links: readonly (Link | undefined)[]) {
  /** Receives without a source, by group and tag. Each queue begins with one from any source. */
  const queues = new Map<number, PostedReceive[]>()

  const match = (key: number): void => {
    const queue = queues.get(key)
    if (queue === undefined) return
    let isBehind = false
    for (const posted of [...queue]) {
      const source =
        posted.from === ANY_SOURCE ? findSource(posted, key) : isBehind ? undefined : posted.from
      if (source === undefined) isBehind = true
      else if (queue.includes(posted)) {
        queue.splice(queue.indexOf(posted), 1)
        claim(posted, source)
      }
    }
    if (queue.length === 0) queues.delete(key)
  }

  const claim = (posted: PostedReceive, source: number): void => {
    posted.source = source
    posted.done = true
    try {
      posted.message = posted.begin(source)
      posted.task.resume(posted)
    } catch (cause) {
      posted.task.engine.failures.fail(posted.task, thrownError(cause))
    }
  }

  /** Finds a rank whose next message has arrived. Each rank starts the search at the next rank. */
  const findSource = ({ task }: PostedReceive, key: number): number | undefined => {
    const { rank, ranks } = task.group
    for (let distance = 1; distance < ranks.length; distance++) {
      const source = (rank + distance) % ranks.length
      const stream = links[ranks[source]!]?.streams.get(key)
      if (stream?.unexpected.some(({ index }) => index === stream.nextReceive) === true) {
        return source
      }
    }
    return undefined
  }

  /** Fails a receive if all of its possible sources have departed. The error names the last source. */
  const checkDeparted = ({ task, from, done }: PostedReceive): void => {
    const { ranks } = task.group
    const sources = from === ANY_SOURCE ? ranks : [ranks[from]!]
    // There is no link to this rank.
    const possible = sources.map((source) => links[source]).filter((link) => link !== undefined)
    const last = possible.at(-1)
    const haveDeparted = possible.every((link) => hasDeparted(task.group, link))
    if (!done && last !== undefined && haveDeparted) {
      task.engine.failures.fail(task, peerError(task, last, task.engine.rank))
    }
  }

  return {
    /** Whether any receive waits for a source. */
    isWaiting(): boolean {
      return queues.size > 0
    },
    /** @param begin - starts the receive once the source is known */
    post(task: Task, from: number, begin: (source: number) => Transfer): MatchedReceive {
      const key = keyOf(task)
      const posted: PostedReceive = {
        task,
        from,
        begin,
        done: false,
        source: from,
        message: undefined,
      }
      const queue = queues.get(key)
      if (queue === undefined && from !== ANY_SOURCE) {
        posted.message = begin(from)
        posted.done = true
        return posted
      }
      if (queue === undefined) queues.set(key, [posted])
      else queue.push(posted)
      match(key)
      if (posted.done) return posted
      // From now on, the calling thread must not receive messages before this receive.
      for (const peer of task.group.ranks) {
        const { mail } = links[peer] ?? {}
        if (mail !== undefined) mail.incoming.isWanted = true
      }
      checkDeparted(posted)
      return posted
    },
    /** Handles a message that has arrived or was announced, but has no receive yet. */
    onArrival({ space, key }: Stream): void {
      if (space === spaces.message && queues.has(key)) match(key)
    },
    onClosed(link: Link): void {
      for (const queue of [...queues.values()]) {
        for (const posted of [...queue]) {
          if (posted.task.group.ranks.includes(link.peer)) checkDeparted(posted)
        }
      }
    },
    remove(task: Task): void {
      if (queues.size === 0) return
      const key = keyOf(task)
      const queue = queues.get(key)
      const place = queue?.findIndex((posted) => posted.task === task) ?? -1
      if (queue === undefined || place < 0) return
      queue.splice(place, 1)
      match(key)
    },
  }
}

function keyOf({ group, operation }: Task): number {
  return streamKey(spaces.message, group.id, operation.tag)
}
