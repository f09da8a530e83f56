import type { Wait } from './waiters.ts'

type Take = (value: Uint8Array) => void

/** Named first-in first-out queues; those who wait for a value are served in the order they came. */
export class Queues {
  readonly #values = new Map<string, Uint8Array[]>()
  readonly #takers = new Map<string, Set<Take>>()
  #waiting = 0

  get size(): number {
    return this.#values.size
  }

  get waiting(): number {
    return this.#waiting
  }

  length(queue: string): number {
    return this.#values.get(queue)?.length ?? 0
  }

  /** The length afterwards: 0 when somebody waited for the value. */
  push(queue: string, value: Uint8Array): number {
    const [taker] = this.#takers.get(queue) ?? []
    if (taker !== undefined) {
      this.#remove(queue, taker)
      taker(value)
      return 0
    }
    const values = this.#values.get(queue)
    if (values === undefined) this.#values.set(queue, [value])
    else values.push(value)
    return this.length(queue)
  }

  /** The oldest value, or undefined when there is none. */
  take(queue: string): Uint8Array | undefined {
    const values = this.#values.get(queue)
    const value = values?.shift()
    if (values?.length === 0) this.#values.delete(queue)
    return value
  }

  /** Hands `taker` the next value that is pushed, after those who came before it. */
  await(queue: string, taker: Take): Wait {
    const takers = this.#takers.get(queue)
    if (takers === undefined) this.#takers.set(queue, new Set([taker]))
    else takers.add(taker)
    this.#waiting++
    return {
      missing: new Set([queue]),
      cancel: () => {
        this.#remove(queue, taker)
      },
    }
  }

  #remove(queue: string, taker: Take): void {
    const takers = this.#takers.get(queue)
    if (takers?.delete(taker) !== true) return
    if (takers.size === 0) this.#takers.delete(queue)
    this.#waiting--
  }
}
