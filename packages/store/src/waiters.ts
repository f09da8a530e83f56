/** A wait that has not ended. */
export interface Wait {
  /** The keys that are still missing. */
  readonly missing: ReadonlySet<string>
  /** Ends it without an answer. */
  cancel(): void
}

interface KeyWait {
  readonly missing: Set<string>
  readonly keys: readonly string[]
  readonly done: () => void
}

/** Who waits for which keys. All keys must exist at the same moment. */
export class KeyWaiters {
  readonly #byKey = new Map<string, Set<KeyWait>>()
  #size = 0

  get size(): number {
    return this.#size
  }

  /** Calls `done` once all of `missing` have appeared and none of `keys` has vanished again. */
  add(keys: readonly string[], missing: Iterable<string>, done: () => void): Wait {
    const wait: KeyWait = { keys, missing: new Set(missing), done }
    for (const key of keys) {
      const waits = this.#byKey.get(key)
      if (waits === undefined) this.#byKey.set(key, new Set([wait]))
      else waits.add(wait)
    }
    this.#size++
    return {
      missing: wait.missing,
      cancel: () => {
        this.#remove(wait)
      },
    }
  }

  appeared(key: string): void {
    for (const wait of [...(this.#byKey.get(key) ?? [])]) {
      wait.missing.delete(key)
      if (wait.missing.size > 0) continue
      this.#remove(wait)
      wait.done()
    }
  }

  vanished(key: string): void {
    for (const wait of this.#byKey.get(key) ?? []) wait.missing.add(key)
  }

  #remove(wait: KeyWait): void {
    if (this.#byKey.get(wait.keys[0] ?? '')?.has(wait) !== true) return
    for (const key of wait.keys) {
      const waits = this.#byKey.get(key)
      waits?.delete(wait)
      if (waits?.size === 0) this.#byKey.delete(key)
    }
    this.#size--
  }
}
