import type { Heap } from '../../arena/heap.ts'
import type { Board, Notice } from '../board.ts'

/** Groups that have a lane, and bytes of one turn. */
const LANES = 4
const SLOT = 16 * 1024
/** Each lane has a cache line here. */
const HEADER = 4096
const LINE = 16
/** Words of a lane: its last turn, then the notices of the two last. */
const TURN = 0
const NOTICE = 1
const NOTICE_WORDS = 4
/** The word behind the lanes counts all turns of all lanes. */
const BELL = LANES * LINE

/** Bytes of a board, whole pages. */
export const BOARD_BYTES = HEADER + LANES * 2 * SLOT
/** Everybody reads all boards: beyond this many ranks of a host, others are faster. */
export const MOST_READERS = 16

interface BoardOptions {
  readonly heap: Heap
  readonly copy: (to: number, from: number, bytes: number) => void
  /** World rank. */
  readonly rank: number
  /** By world rank: where its board is in this heap; undefined where it is not. */
  readonly boards: readonly (number | undefined)[]
  readonly wake: (peer: number) => void
}

/** The boards of a host's ranks, laid over windows of this heap. */
export class SharedBoard implements Board {
  readonly lanes = LANES
  readonly slotBytes = SLOT
  readonly #options: BoardOptions
  /** By world rank. */
  readonly #words: readonly (Int32Array | undefined)[]
  readonly #peers: readonly number[]
  /** The bells of the others when they were last listened to. */
  readonly #heard: Int32Array

  constructor(options: BoardOptions) {
    const { heap, rank, boards } = options
    this.#options = options
    this.#words = boards.map((at) =>
      at === undefined ? undefined : new Int32Array(heap.bytes.buffer, at, HEADER / 4),
    )
    this.#peers = [...boards.keys()].filter((peer) => peer !== rank && boards[peer] !== undefined)
    this.#heard = new Int32Array(boards.length)
  }

  reaches(peer: number): boolean {
    return this.#words[peer] !== undefined
  }

  layOut(lane: number, turn: number, notice: Notice, at: number, bytes: number): void {
    const { copy, rank, wake } = this.#options
    if (bytes > 0) copy(this.slotOf(rank, lane, turn), at, bytes)
    const words = this.#words[rank]!
    const { sequence, fingerprint } = notice
    const place = placeOfNotice(lane, turn)
    words[place] = sequence
    words[place + 1] = fingerprint.kind
    words[place + 2] = fingerprint.root
    words[place + 3] = fingerprint.count
    Atomics.store(words, lane * LINE + TURN, turn)
    Atomics.store(words, BELL, (words[BELL]! + 1) | 0)
    for (const peer of this.#peers) wake(peer)
  }

  turnOf(peer: number, lane: number): number {
    return Atomics.load(this.#words[peer]!, lane * LINE + TURN)
  }

  shows(peer: number, lane: number, turn: number, notice: Notice): boolean {
    const words = this.#words[peer]!
    const place = placeOfNotice(lane, turn)
    const { sequence, fingerprint } = notice
    return (
      words[place] === (sequence | 0) &&
      words[place + 1] === fingerprint.kind &&
      words[place + 2] === (fingerprint.root | 0) &&
      words[place + 3] === fingerprint.count
    )
  }

  noticeOf(peer: number, lane: number, turn: number): Notice {
    const words = this.#words[peer]!
    const place = placeOfNotice(lane, turn)
    return {
      sequence: words[place]! >>> 0,
      fingerprint: {
        kind: words[place + 1]!,
        root: words[place + 2]! >>> 0,
        count: words[place + 3]!,
      },
    }
  }

  slotOf(peer: number, lane: number, turn: number): number {
    return this.#options.boards[peer]! + HEADER + (2 * lane + (turn & 1)) * SLOT
  }

  /** Whether anybody has laid something out since the last time this was asked. */
  hasNews(): boolean {
    let news = false
    for (const peer of this.#peers) {
      const bell = Atomics.load(this.#words[peer]!, BELL)
      if (bell !== this.#heard[peer]) news = true
      this.#heard[peer] = bell
    }
    return news
  }
}

function placeOfNotice(lane: number, turn: number): number {
  return lane * LINE + NOTICE + (turn & 1) * NOTICE_WORDS
}
