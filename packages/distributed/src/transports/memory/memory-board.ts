import type { Heap } from '../../arena/heap.ts'
import type { Board, Notice } from '../board.ts'
import { sameFingerprint } from '../../operation.ts'

const LANES = 4
/** Small, so that tests see buffers that are too large for it. */
const SLOT = 4 * 1024
/** At the low end of a heap, where offset 0 means that there is no buffer. */
const FIRST = 64

interface Lane {
  turn: number
  /** By turn modulo 2. */
  readonly notices: Notice[]
}

/** What the ranks of an in-process world lay out: each writes it into the heaps of all of its host. */
export class MemoryBoards {
  readonly #hosts: readonly number[]
  readonly #heaps: readonly Heap[]
  /** By rank. */
  readonly #lanes: readonly (readonly Lane[])[]

  /** @param heaps - by rank; filled later */
  constructor(hosts: readonly number[], heaps: readonly Heap[]) {
    this.#hosts = hosts
    this.#heaps = heaps
    this.#lanes = hosts.map(() => Array.from({ length: LANES }, () => ({ turn: 0, notices: [] })))
  }

  /** Bytes of every heap that they take up. */
  get end(): number {
    return FIRST + this.#hosts.length * LANES * 2 * SLOT
  }

  boardOf(rank: number): Board {
    const reaches = (peer: number): boolean => this.#hosts[peer] === this.#hosts[rank]
    const slotOf = (peer: number, lane: number, turn: number): number =>
      FIRST + ((peer * LANES + lane) * 2 + (turn & 1)) * SLOT
    return {
      lanes: LANES,
      slotBytes: SLOT,
      reaches,
      slotOf,
      layOut: (lane, turn, notice, at, bytes) => {
        const source = this.#heaps[rank]!.bytes.subarray(at, at + bytes)
        for (const [peer, heap] of this.#heaps.entries()) {
          if (reaches(peer)) heap.bytes.set(source, slotOf(rank, lane, turn))
        }
        const own = this.#lanes[rank]![lane]!
        own.notices[turn & 1] = notice
        own.turn = turn
      },
      turnOf: (peer, lane) => this.#lanes[peer]![lane]!.turn,
      shows: (peer, lane, turn, { sequence, fingerprint }) => {
        const theirs = this.#lanes[peer]![lane]!.notices[turn & 1]!
        return theirs.sequence === sequence && sameFingerprint(theirs.fingerprint, fingerprint)
      },
      noticeOf: (peer, lane, turn) => this.#lanes[peer]![lane]!.notices[turn & 1]!,
    }
  }
}
