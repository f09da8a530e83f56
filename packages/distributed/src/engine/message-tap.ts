import type { AlgorithmName, OperationName } from '../operation.ts'
import type { Transfer } from './messages/stream.ts'
import { Task } from './task.ts'

/** An event of a message on its sender or its receiver. All ranks are world ranks. */
export interface MessageEvent {
  /** `sent`: `rank` has handed the message to its engine. `received`: `rank` has received it and continues. */
  readonly kind: 'sent' | 'received'
  readonly rank: number
  /** The rank at the other end. */
  readonly peer: number
  readonly bytes: number
  readonly operation: OperationName
  readonly algorithm: AlgorithmName
  readonly group: string
  /** Position of a collective in its group, the same on all ranks. */
  readonly sequence: number
  /** The tag of `send` and `recv`; 0 for collectives. */
  readonly tag: number
  /**
   * Index, from 0, among the messages from one rank to the other in this collective or with this tag.
   * It is the same on both ranks.
   */
  readonly step: number
}

export type MessageListener = (message: MessageEvent) => void

/** A task that reports each message to the listener of the engine, in causal order. */
export class TappedTask extends Task {
  override send(to: number, at: number, bytes: number, count?: number): Transfer {
    const message = super.send(to, at, bytes, count)
    this.#tell('sent', message)
    return message
  }

  /** The returned message notifies the listener when the algorithm first reads `done` as true. */
  override receive(from: number, at: number, bytes: number, count?: number): Transfer {
    const message = super.receive(from, at, bytes, count)
    let { done } = message
    let isTold = false
    return Object.defineProperty(message, 'done', {
      get: () => {
        if (done && !isTold) {
          isTold = true
          this.#tell('received', message)
        }
        return done
      },
      set: (isDone: boolean) => {
        done = isDone
      },
    })
  }

  #tell(kind: MessageEvent['kind'], { stream, index, bytes }: Transfer): void {
    const { name, algorithm, sequence, tag } = this.operation
    const { onMessage, rank } = this.engine
    onMessage?.({
      kind,
      rank,
      peer: stream.link.peer,
      bytes,
      operation: name,
      algorithm,
      group: this.group.name,
      sequence,
      tag,
      step: index,
    })
  }
}
