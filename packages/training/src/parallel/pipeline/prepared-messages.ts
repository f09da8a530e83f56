import type { PersistentOperation, ProcessGroup } from '@tsrun/distributed'
import { freeAfterRun } from '../group-buffers.ts'

/** A message with its buffer. */
export interface PreparedMessage {
  readonly buffer: Float32Array
  readonly operation: PersistentOperation
}

/** A buffer, and the operations that use it, one at a time. */
interface PooledBuffer {
  readonly buffer: Float32Array
  readonly operations: Map<number, PersistentOperation>
  /** The operation that uses the buffer; undefined while the buffer is free. */
  current: PersistentOperation | undefined
  /** Whether the buffer is free again as soon as the operation has ended. */
  isSending: boolean
}

/**
 * The float32 messages of a pipeline, in the arena of its group. Every pass exchanges the same
 * messages, so buffers and prepared operations are reused.
 */
export class PreparedMessages {
  readonly #group: ProcessGroup
  /** By the number of elements. */
  readonly #pool = new Map<number, PooledBuffer[]>()

  constructor(group: ProcessGroup) {
    this.#group = group
  }

  /**
   * Returns a message with a free buffer of undefined contents, for `send` or `receive`.
   *
   * @param key - identifies the message across passes
   * @param prepare - makes its operation on a buffer that has none yet
   */
  take(
    key: number,
    length: number,
    prepare: (buffer: Float32Array) => PersistentOperation,
  ): PreparedMessage {
    const pooled = this.#freeBuffer(length)
    let operation = pooled.operations.get(key)
    if (operation === undefined) pooled.operations.set(key, (operation = prepare(pooled.buffer)))
    pooled.current = operation
    return { buffer: pooled.buffer, operation }
  }

  /** Sends the buffer, which stays in use until the send completes. */
  send(message: PreparedMessage): void {
    message.operation.start()
    this.#pooledOf(message).isSending = true
  }

  /** Receives into the buffer, which stays in use until `release`. */
  receive({ operation }: PreparedMessage): void {
    operation.start()
  }

  /** Returns the buffer to the pool. */
  release(message: PreparedMessage): void {
    this.#pooledOf(message).current = undefined
  }

  /** Frees each buffer as soon as no message uses it. */
  dispose(): void {
    for (const { buffer, operations, current } of [...this.#pool.values()].flat()) {
      const free = (): void => {
        this.#group.free(buffer)
      }
      for (const operation of operations.values()) {
        freeAfterRun(operation, operation === current ? free : undefined)
      }
      if (current === undefined) free()
    }
    this.#pool.clear()
  }

  #freeBuffer(length: number): PooledBuffer {
    let pool = this.#pool.get(length)
    if (pool === undefined) this.#pool.set(length, (pool = []))
    let pooled = pool.find(
      ({ current, isSending }) => current === undefined || (isSending && current.isCompleted()),
    )
    if (pooled === undefined) {
      const buffer = this.#group.allocUnsafe('float32', length)
      pooled = { buffer, operations: new Map(), current: undefined, isSending: false }
      pool.push(pooled)
    }
    pooled.isSending = false
    return pooled
  }

  #pooledOf({ buffer, operation }: PreparedMessage): PooledBuffer {
    return this.#pool.get(buffer.length)!.find(({ current }) => current === operation)!
  }
}
