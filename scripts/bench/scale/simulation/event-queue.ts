type Action = () => void

/** What is going to happen, in the order of its times; what was scheduled first, of the same time. */
export class EventQueue {
  /** A binary heap; actions and positions are in the same order as times. */
  readonly #times: number[] = []
  readonly #positions: number[] = []
  readonly #actions: Action[] = []
  #scheduled = 0

  /** Schedules what happens at a time, in seconds. */
  at(time: number, action: Action): void {
    this.#times.push(time)
    this.#positions.push(this.#scheduled++)
    this.#actions.push(action)
    for (let i = this.#times.length - 1; i > 0;) {
      const parent = (i - 1) >> 1
      if (!this.#isBefore(i, parent)) break
      this.#swap(i, parent)
      i = parent
    }
  }

  /** Lets everything happen, with what is scheduled meanwhile. */
  run(): void {
    while (this.#times.length > 0) this.#takeFirst()()
  }

  #takeFirst(): Action {
    const last = this.#times.length - 1
    this.#swap(0, last)
    const action = this.#actions.pop()!
    this.#times.pop()
    this.#positions.pop()
    for (let i = 0; ;) {
      let first = i
      for (const child of [2 * i + 1, 2 * i + 2]) {
        if (child < last && this.#isBefore(child, first)) first = child
      }
      if (first === i) return action
      this.#swap(i, first)
      i = first
    }
  }

  #isBefore(i: number, j: number): boolean {
    const difference = this.#times[i]! - this.#times[j]!
    return difference < 0 || (difference === 0 && this.#positions[i]! < this.#positions[j]!)
  }

  #swap(i: number, j: number): void {
    for (const list of [this.#times, this.#positions, this.#actions] as unknown[][]) {
      const kept = list[i]
      list[i] = list[j]
      list[j] = kept
    }
  }
}
