/**
 * Callers that have proven nothing yet. When there are too many, the oldest gives way of the address
 * that has the most: so many callers of one address keep out each other, and not one of another address
 * whose way is long.
 */
export class Crowd<Caller> {
  /** In the order of their arrival. */
  readonly #byAddress = new Map<string, Set<Caller>>()
  readonly #addresses = new Map<Caller, string>()

  get size(): number {
    return this.#addresses.size
  }

  add(caller: Caller, address: string): void {
    this.#addresses.set(caller, address)
    const own = this.#byAddress.get(address)
    if (own === undefined) this.#byAddress.set(address, new Set([caller]))
    else own.add(caller)
  }

  /** Whether it was there. */
  delete(caller: Caller): boolean {
    const address = this.#addresses.get(caller)
    if (address === undefined) return false
    this.#addresses.delete(caller)
    const own = this.#byAddress.get(address)
    own?.delete(caller)
    if (own?.size === 0) this.#byAddress.delete(address)
    return true
  }

  /** The one that is to give way. */
  get first(): Caller | undefined {
    let largest: Set<Caller> | undefined
    for (const own of this.#byAddress.values()) {
      if (own.size > (largest?.size ?? 0)) largest = own
    }
    return largest?.values().next().value
  }

  values(): Caller[] {
    return [...this.#addresses.keys()]
  }
}
