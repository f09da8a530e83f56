import type { PersistentOperation, ProcessGroup } from '@tsrun/distributed'
import { freeAfterRun } from '../group-buffers.ts'

/** A message with its memory. */
export interface PreparedMessage {
  readonly buffer: Float32Array
  readonly operation: PersistentOperation
}

/** A buffer, and the operations that use it, one at a time. */
interface Lane {
  readonly buffer: Float32Array
  readonly operations: Map<number, PersistentOperation>
  /** The operation that has the buffer; undefined while it is free. */
  current: PersistentOperation | undefined
  /** Whether the buffer is free again as soon as the operation has ended. */
  isSending: boolean
}

/**
 * The messages of a pipeline, float32, in the arena of its group. Passes are alike, so that a message
 * gets the same buffer in each of them, and its operation is prepared once.
 */
export class PreparedMessages {
  readonly #group: ProcessGroup
  /** By the number of elements. */
  readonly #lanes = new Map<number, Lane[]>()

  constructor(group: ProcessGroup) {
    this.#group = group
  }

  /**
   * A message with a buffer that is not in use, whose contents are undefined; then `send` or `receive`.
   *
   * @param key - the same one for the same message of each pass
   * @param prepare - makes its operation on a buffer, unless there is one
   */
  take(
    key: number,
    length: number,
    prepare: (buffer: Float32Array) => PersistentOperation,
  ): PreparedMessage {
    const lane = this.#freeLane(length)
    let operation = lane.operations.get(key)
    if (operation === undefined) lane.operations.set(key, (operation = prepare(lane.buffer)))
    lane.current = operation
    return { buffer: lane.buffer, operation }
  }

  /** Sends the buffer, which is in use until that has ended. */
  send(message: PreparedMessage): void {
    message.operation.start()
    this.#laneOf(message).isSending = true
  }

  /** Receives into the buffer, which is in use until `release`. */
  receive({ operation }: PreparedMessage): void {
    operation.start()
  }

  /** Takes the buffer back. */
  release(message: PreparedMessage): void {
    this.#laneOf(message).current = undefined
  }

  /** Frees the buffers, as soon as no message is on its way through them. */
  dispose(): void {
    for (const { buffer, operations, current } of [...this.#lanes.values()].flat()) {
      const free = (): void => {
        this.#group.free(buffer)
      }
      for (const operation of operations.values()) {
        freeAfterRun(operation, operation === current ? free : undefined)
      }
      if (current === undefined) free()
    }
    this.#lanes.clear()
  }

  #freeLane(length: number): Lane {
    let lanes = this.#lanes.get(length)
    if (lanes === undefined) this.#lanes.set(length, (lanes = []))
    let lane = lanes.find(
      ({ current, isSending }) => current === undefined || (isSending && current.isCompleted()),
    )
    if (lane === undefined) {
      const buffer = this.#group.allocUnsafe('float32', length)
      lane = { buffer, operations: new Map(), current: undefined, isSending: false }
      lanes.push(lane)
    }
    lane.isSending = false
    return lane
  }

  #laneOf({ buffer, operation }: PreparedMessage): Lane {
    return this.#lanes.get(buffer.length)!.find(({ current }) => current === operation)!
  }
}
