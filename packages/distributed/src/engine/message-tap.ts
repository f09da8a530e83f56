import type { Algorithm } from '../algorithms/algorithm.ts'
import type { Channel, MatchedReceive, Message, Steps, Waited } from '../algorithms/channel.ts'
import type { TuningTable } from '../algorithms/tuning-table.ts'
import type { Heap } from '../arena/heap.ts'
import type { Kernels } from '../kernels/kernels.ts'
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
  const channel = new TappedChannel(task, listener)
  const steps = algorithm(channel, task.operation)
  for (let next = steps.next(); next.done !== true; next = steps.next()) {
    yield channel.originalOf(next.value)
  }
}

class TappedChannel implements Channel {
  readonly #task: Task
  readonly #listener: MessageListener
  /** The messages of the task, by those that the algorithm has. */
  readonly #originals = new WeakMap<Waited, Waited>()

  constructor(task: Task, listener: MessageListener) {
    this.#task = task
    this.#listener = listener
  }

  get rank(): number {
    return this.#task.rank
  }

  get size(): number {
    return this.#task.size
  }

  get hosts(): readonly number[] {
    return this.#task.hosts
  }

  get heap(): Heap {
    return this.#task.heap
  }

  get kernels(): Kernels {
    return this.#task.kernels
  }

  get tuning(): TuningTable {
    return this.#task.tuning
  }

  /** What the engine waits for when the algorithm waits for `waited`. */
  originalOf(waited: Waited): Waited {
    return this.#originals.get(waited) ?? waited
  }

  send(to: number, at: number, bytes: number, count?: number): Message {
    const message = this.#task.send(to, at, bytes, count)
    this.#tell('sent', message)
    return message
  }

  receive(from: number, at: number, bytes: number, count?: number): Message {
    return this.#tapped(this.#task.receive(from, at, bytes, count))
  }

  receiveMatched(from: number, at: number, bytes: number): MatchedReceive {
    const matched = this.#task.receiveMatched(from, at, bytes)
    const tapped = (original: Message | undefined): Message | undefined =>
      original && this.#tapped(original as Transfer)
    let message: Message | undefined
    const own: MatchedReceive = {
      get done() {
        return matched.done
      },
      get source() {
        return matched.source
      },
      get message() {
        return (message ??= tapped(matched.message))
      },
    }
    this.#originals.set(own, matched)
    return own
  }

  skip(from: number): void {
    this.#task.skip(from)
  }

  scratch(bytes: number): number {
    return this.#task.scratch(bytes)
  }

  /** Returns a receive that tells the listener when the algorithm finds it done. */
  #tapped(original: Transfer): Message {
    let isTold = false
    const tell = (): void => {
      if (isTold) return
      isTold = true
      this.#tell('received', original)
    }
    const { at, bytes } = original
    const message: Message = {
      at,
      bytes,
      get done() {
        if (original.done) tell()
        return original.done
      },
    }
    this.#originals.set(message, original)
    return message
  }

  #tell(kind: MessageEvent['kind'], { stream, index, bytes }: Transfer): void {
    const { engine, operation, group } = this.#task
    const { name, algorithm, sequence, tag } = operation
    this.#listener({
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
}
