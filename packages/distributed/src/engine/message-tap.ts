import type { Algorithm } from '../algorithms/algorithm.ts'
import type { Channel, MatchedReceive, Message, Steps, Waited } from '../algorithms/channel.ts'
import type { AlgorithmName, OperationName } from '../operation.ts'
import type { Transfer } from './messages/stream.ts'
import type { Task } from './task.ts'

/** A message of an operation, on one of the two ranks that it concerns. Ranks are those of the world. */
export interface MessageEvent {
  /** `sent`: `rank` has handed the message to its engine. `received`: `rank` has it and continues. */
  readonly kind: 'sent' | 'received'
  readonly rank: number
  /** The rank at the other end. */
  readonly peer: number
  readonly bytes: number
  readonly operation: OperationName
  readonly algorithm: AlgorithmName
  readonly group: string
  /** Position of a collective among those of its group, the same on all ranks. */
  readonly sequence: number
  /** The tag of `send` and `recv`; 0 for collectives. */
  readonly tag: number
  /**
   * Position among the messages from one rank to the other, from 0: of the collective, or of the tag.
   * It is the same on both ranks.
   */
  readonly step: number
}

export type MessageListener = (message: MessageEvent) => void

/** Runs an algorithm, and tells `listener` each message in the order of cause and effect. */
export function* tapped(algorithm: Algorithm, task: Task, listener: MessageListener): Steps {
  /** The messages of the task, by those that the algorithm has. */
  const originals = new WeakMap<Waited, Waited>()
  const steps = algorithm(tappedChannel(task, listener, originals), task.operation)
  for (let next = steps.next(); next.done !== true; next = steps.next()) {
    yield originals.get(next.value) ?? next.value
  }
}

function tappedChannel(
  task: Task,
  listener: MessageListener,
  originals: WeakMap<Waited, Waited>,
): Channel {
  const { rank, size, hosts, heap, kernels, tuning } = task

  const tell = (kind: MessageEvent['kind'], { stream, index, bytes }: Transfer): void => {
    const { engine, operation, group } = task
    const { name, algorithm, sequence, tag } = operation
    listener({
      kind,
      rank: engine.rank,
      peer: stream.link.peer,
      bytes,
      operation: name,
      algorithm,
      group: group.name,
      sequence,
      tag,
      step: index,
    })
  }

  /** Returns a receive that tells the listener when the algorithm finds it done. */
  const tapReceive = (original: Transfer): Message => {
    let isTold = false
    const { at, bytes } = original
    const message: Message = {
      at,
      bytes,
      get done() {
        if (original.done && !isTold) {
          isTold = true
          tell('received', original)
        }
        return original.done
      },
    }
    originals.set(message, original)
    return message
  }

  return {
    rank,
    size,
    hosts,
    heap,
    kernels,
    tuning,
    send: (to, at, bytes, count) => {
      const message = task.send(to, at, bytes, count)
      tell('sent', message)
      return message
    },
    receive: (from, at, bytes, count) => tapReceive(task.receive(from, at, bytes, count)),
    receiveMatched: (from, at, bytes) => {
      const matched = task.receiveMatched(from, at, bytes)
      let message: Message | undefined
      const own: MatchedReceive = {
        get done() {
          return matched.done
        },
        get source() {
          return matched.source
        },
        get message() {
          return (message ??= matched.message && tapReceive(matched.message as Transfer))
        },
      }
      originals.set(own, matched)
      return own
    },
    skip: (from) => {
      task.skip(from)
    },
    scratch: (bytes) => task.scratch(bytes),
  }
}
