import type { Algorithm } from '../algorithms/algorithm.ts'
import type { Channel, MatchedReceive, Message, Steps } from '../algorithms/channel.ts'
import type { TuningTable } from '../algorithms/tuning-table.ts'
import type { Heap } from '../arena/heap.ts'
import type { Kernels } from '../kernels/kernels.ts'
import type { AlgorithmName, OperationName } from '../operation.ts'
import type { Transfer } from './messages/stream.ts'
import type { Task } from './task.ts'

/** A message of an operation, on one of the two ranks that it concerns. Ranks are those of the world. */
export interface MessageEvent {
  /** `sent`: `rank` has handed the message to its engine. `received`: `rank` has all of it. */
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
    yield next.value
    channel.tellReceived()
  }
  channel.tellReceived()
}

class TappedChannel implements Channel {
  readonly #task: Task
  readonly #listener: MessageListener
  /** Receives that the listener has not been told. */
  #receives: { readonly message: Message | undefined }[] = []

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

  send(to: number, at: number, bytes: number, count?: number): Message {
    // What this rank sends may depend on what it has received.
    this.tellReceived()
    const message = this.#task.send(to, at, bytes, count)
    this.#tell('sent', message)
    return message
  }

  receive(from: number, at: number, bytes: number, count?: number): Message {
    const message = this.#task.receive(from, at, bytes, count)
    this.#receives.push({ message })
    this.tellReceived()
    return message
  }

  receiveMatched(from: number, at: number, bytes: number): MatchedReceive {
    const matched = this.#task.receiveMatched(from, at, bytes)
    this.#receives.push(matched)
    return matched
  }

  skip(from: number): void {
    this.#task.skip(from)
  }

  scratch(bytes: number): number {
    return this.#task.scratch(bytes)
  }

  /** Tells the listener the messages that have arrived. */
  tellReceived(): void {
    this.#receives = this.#receives.filter(({ message }) => {
      if (message?.done !== true) return true
      this.#tell('received', message as Transfer)
      return false
    })
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
