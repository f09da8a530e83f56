import { ALL, NOBODY, planOf } from '../../../../packages/distributed/src/algorithms/flat.ts'
import {
  findWindowCollective,
  type Awaited,
  type Window,
  type WindowSteps,
} from '../../../../packages/distributed/src/algorithms/window.ts'
import type { Operation } from '../../../../packages/distributed/src/operation.ts'
import type { MachineCosts } from './cluster.ts'
import type { SimulatedRank } from './simulated-rank.ts'

/** Where a rank that shares memory says how far it is, and others wait for it. */
class Progress {
  /** When each step is seen by others. */
  readonly #times: number[] = []
  readonly #waiting: { readonly steps: number; readonly onSeen: (time: number) => void }[] = []

  advance(time: number): void {
    this.#times.push(time)
    for (let i = this.#waiting.length - 1; i >= 0; i--) {
      const { steps, onSeen } = this.#waiting[i]!
      if (steps > this.#times.length) continue
      this.#waiting.splice(i, 1)
      onSeen(time)
    }
  }

  /** Calls back with the time when so many steps are seen: at once, or later. */
  await(steps: number, onSeen: (time: number) => void): void {
    const time = this.#times[steps - 1]
    if (time === undefined) this.#waiting.push({ steps, onSeen })
    else onSeen(time)
  }
}

/** The collectives without messages, of ranks that share memory. */
export class SharedMemoryRanks {
  readonly #ranks: readonly SimulatedRank[]
  readonly #costs: MachineCosts
  readonly #progress: readonly Progress[]

  constructor(ranks: readonly SimulatedRank[], costs: MachineCosts) {
    this.#ranks = ranks
    this.#costs = costs
    this.#progress = ranks.map(() => new Progress())
  }

  /** @param operation - on each rank */
  run(operation: Operation): void {
    for (const [rank, own] of this.#ranks.entries()) {
      const body = operation.algorithm === 'flat' ? this.#flat : this.#window
      const steps = body.call(this, rank, operation)
      let isWaiting = false
      own.start(() => {
        while (!isWaiting) {
          const { done, value } = steps.next()
          if (done === true) return true
          isWaiting = true
          this.#await(rank, value, () => {
            isWaiting = false
          })
        }
        return false
      })
    }
  }

  *#flat(rank: number, operation: Operation): WindowSteps {
    const own = this.#ranks[rank]!
    const size = this.#ranks.length
    const { published, awaited, take, bytes } = planOf(operation, rank, size)
    own.kernels.copy(0, -1, published)
    this.#advance(rank)
    if (awaited !== NOBODY && awaited !== rank) yield { rank: awaited, steps: 1 }
    const slotOf = (peer: number): number => -1 - peer
    take?.({ rank, size, kernels: own.kernels, slotOf }, operation, bytes)
  }

  /** Ranks wait first until all have exposed their buffers, which counts as a step. */
  *#window(rank: number, operation: Operation): WindowSteps {
    const own = this.#ranks[rank]!
    const { overhead, perByte } = this.#costs.sharedMemory
    const window: Window = {
      rank,
      size: this.#ranks.length,
      kernels: own.kernels,
      scratch: () => -1,
      read: (_rank, _at, _offset, bytes) => {
        own.spend(overhead + bytes * perByte)
      },
      advance: () => {
        this.#advance(rank)
      },
    }
    this.#advance(rank)
    yield { rank: ALL, steps: 1 }
    for (const awaited of findWindowCollective(operation.name)!(window, operation)) {
      yield { ...awaited, steps: awaited.steps + 1 }
    }
  }

  #advance(rank: number): void {
    const { overhead, latency } = this.#costs.slots
    const own = this.#ranks[rank]!
    own.spend(overhead)
    this.#progress[rank]!.advance(own.clock + latency)
  }

  #await(rank: number, { rank: peer, steps }: Awaited, onCome: () => void): void {
    const peers = this.#progress.filter((_, i) => i !== rank && (peer === ALL || i === peer))
    let left = peers.length
    let last = 0
    for (const progress of peers) {
      progress.await(steps, (time) => {
        last = Math.max(last, time)
        if (--left === 0) this.#ranks[rank]!.expect(last, onCome)
      })
    }
  }
}
