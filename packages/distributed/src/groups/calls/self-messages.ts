import { host, monotonicNow, tsrError, type TsrError } from '@tsrun/core'
import type { Heap } from '../../arena/heap.ts'
import { bytesOf, type Operation } from '../../operation.ts'
import type { Ticket, TicketDriver } from '../../ticket.ts'
import type { Member } from './arguments.ts'

/** Longest timer of Node.js, in milliseconds. */
const LONGEST_TIMER = 2 ** 31 - 1

/**
 * Creates the driver of messages of a rank to itself. A send waits for its receive, or a receive for
 * its send. Calls with the same tag match in call order. The message is then copied, without the
 * engine.
 */
export function createSelfMessages(
  { name: group, rank }: Pick<Member, 'name' | 'rank'>,
  heap: Heap,
) {
  /** The unmatched messages in the order of their calls, with the timers of their time-outs. */
  const unmatched = new Map<Ticket, NodeJS.Timeout>()

  const end = (ticket: Ticket, error?: TsrError): void => {
    clearTimeout(unmatched.get(ticket))
    unmatched.delete(ticket)
    const now = monotonicNow()
    ticket.settle(error, ticket.posted, now, now)
    ticket.callBack()
  }

  const factsOf = ({ operation }: Ticket) => {
    return { rank, operation: `${describeCall(operation)} with itself`, group }
  }

  const exchange = (first: Ticket, second: Ticket): void => {
    const [a, b] = [first.operation, second.operation]
    if (a.dtype === b.dtype && a.count === b.count) {
      const [sent, received] = a.name === 'send' ? [a, b] : [b, a]
      heap.bytes.copyWithin(received.output, sent.input, sent.input + bytesOf(sent))
      end(first)
      end(second)
      return
    }
    const facts = { group, sequence: b.sequence, rank, peer: rank }
    const [mine, theirs] = [describeCall(a), describeCall(b)]
    end(first, tsrError('ERR_TSR_MISMATCH', { ...facts, mine, theirs }))
    end(second, tsrError('ERR_TSR_MISMATCH', { ...facts, mine: theirs, theirs: mine }))
  }

  const driver: TicketDriver = {
    start(ticket, operation) {
      ticket.begin(driver, operation)
      ticket.posted = monotonicNow()
      const { name, tag, timeout, aborted } = operation
      if (aborted) {
        driver.abort(ticket)
        return
      }
      for (const other of unmatched.keys()) {
        if (other.operation.tag !== tag || other.operation.name === name) continue
        exchange(other, ticket)
        return
      }
      const onTimeout = (): void => {
        const facts = { ...factsOf(ticket), milliseconds: timeout, peers: `${rank} itself` }
        end(ticket, tsrError('ERR_TSR_OPERATION_TIMEOUT', facts))
      }
      unmatched.set(ticket, host.background(onTimeout, Math.min(timeout, LONGEST_TIMER)))
    },
    poll: () => undefined,
    /** Fails instead of blocking: while this rank is blocked, it cannot make the matching call. */
    block(ticket, operation) {
      end(ticket, tsrError('ERR_TSR_SELF_SEND', { operation, rank }))
    },
    notify(ticket, callback, isAwaited) {
      ticket.addCallback(callback)
      if (isAwaited) host.foreground(unmatched.get(ticket)!)
    },
    abort(ticket) {
      end(ticket, tsrError('ERR_TSR_OPERATION_ABORTED', factsOf(ticket)))
    },
  }
  return {
    driver,
    /** Fails all unmatched messages, because the group is destroyed. */
    finish() {
      for (const ticket of unmatched.keys()) {
        end(
          ticket,
          tsrError('ERR_TSR_GROUP_DESTROYED', { operation: ticket.operation.name, group }),
        )
      }
    },
  }
}

export function describeCall({
  name,
  dtype,
  count,
}: Pick<Operation, 'name' | 'dtype' | 'count'>): string {
  return `${name} ${dtype}[${count}]`
}
