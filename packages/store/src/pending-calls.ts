import type { Answer } from './requests.ts'

/** How a call ended: answered, or not, because the store went away or kept silent. */
export type Outcome = Answer | { readonly closed: string } | { readonly silent: true }

export interface PendingCall {
  readonly id: number
  readonly outcome: Promise<Outcome>
}

/** The calls that wait for their answer, by id. */
export class PendingCalls {
  readonly #settlers = new Map<number, (outcome: Outcome) => void>()
  readonly #onBusy: (busy: boolean) => void
  #lastId = 0

  /** @param onBusy - told when the first call opens and when the last one ends */
  constructor(onBusy: (busy: boolean) => void) {
    this.#onBusy = onBusy
  }

  open(): PendingCall {
    const id = ++this.#lastId
    const outcome = new Promise<Outcome>((resolve) => {
      this.#settlers.set(id, resolve)
    })
    if (this.#settlers.size === 1) this.#onBusy(true)
    return { id, outcome }
  }

  settle(id: number, outcome: Outcome): void {
    const resolve = this.#settlers.get(id)
    if (resolve === undefined) return
    this.#settlers.delete(id)
    if (this.#settlers.size === 0) this.#onBusy(false)
    resolve(outcome)
  }

  settleAll(outcome: Outcome): void {
    for (const id of [...this.#settlers.keys()]) this.settle(id, outcome)
  }
}
