import { decode, encode } from '@tsrun/core'
import type { CallOptions, MessageOptions, Work } from '../process-group.ts'
import { checkPeer, checkTag } from './arguments.ts'
import type { EngineProcessGroup } from './engine-group.ts'
import { SteppedWork } from './stepped-work.ts'

/** Tags from here on belong to object messages, apart from the user's. */
const OBJECT_TAGS = 2 ** 31

/**
 * Values of any shape that MessagePack can carry, as a length message and a payload of words.
 * For control data: tensors travel as typed arrays.
 */
export class ObjectMessages {
  readonly #group: EngineProcessGroup
  /** The last receive of each peer and tag: the next one waits for it, to keep their order. */
  readonly #lastReceives = new Map<string, SteppedWork<unknown>>()
  #count = 0

  constructor(group: EngineProcessGroup) {
    this.#group = group
  }

  send(value: unknown, to: number, options: MessageOptions | undefined): Work {
    const tag = OBJECT_TAGS + checkTag(options?.tag ?? 0)
    const { length, words } = toWords(value)
    const head = this.#group.messageAt('send', length, to, tag, options)
    const body = this.#group.messageAt('send', words, to, tag, options)
    return new SteppedWork<void>(
      this.#count++,
      (function* () {
        yield head
        yield body
      })(),
    )
  }

  receive(from: number, options: MessageOptions | undefined): Work<unknown> {
    const group = this.#group
    checkPeer('recvObject', group, from)
    const userTag = checkTag(options?.tag ?? 0)
    const tag = OBJECT_TAGS + userTag
    const key = `${from}:${userTag}`
    const previous = this.#lastReceives.get(key)
    const work = new SteppedWork<unknown>(
      this.#count++,
      (function* () {
        if (previous !== undefined && !previous.isCompleted()) yield previous
        const length = new Int32Array(1)
        const takesTurn = options?.signal?.aborted !== true
        try {
          yield group.messageAt('recv', length, from, tag, options)
        } catch (error) {
          // the payload that belongs to it must not be taken for the next length
          if (takesTurn) trySkip(group, from, tag)
          throw error
        }
        const words = new Int32Array(wordsFor(length[0]!))
        yield group.messageAt('recv', words, from, tag, options)
        return fromWords(words, length[0]!)
      })(),
    )
    this.#lastReceives.set(key, work)
    return work
  }

  broadcast<T>(value: T, root: number, options: CallOptions | undefined): Work<T> {
    const group = this.#group
    // encoded first: what can't be encoded must not use up a place among the collectives
    const mine = group.rank === root ? toWords(value) : undefined
    const sequence = group.reserveSequences(2)
    return new SteppedWork<T>(
      sequence,
      (function* () {
        const length = mine?.length ?? new Int32Array(1)
        yield group.broadcastAt(length, root, sequence, options)
        const words = mine?.words ?? new Int32Array(wordsFor(length[0]!))
        yield group.broadcastAt(words, root, sequence + 1, options)
        return mine === undefined ? (fromWords(words, length[0]!) as T) : value
      })(),
    )
  }

  allGather<T>(value: T, options: CallOptions | undefined): Work<T[]> {
    const group = this.#group
    const mine = toWords(value)
    const sequence = group.reserveSequences(2)
    return new SteppedWork<T[]>(
      sequence,
      (function* () {
        const lengths = new Int32Array(group.size)
        yield group.allGatherAt(lengths, mine.length, sequence, options)
        const slice = wordsFor(Math.max(...lengths))
        const input = new Int32Array(slice)
        input.set(mine.words)
        const output = new Int32Array(slice * group.size)
        yield group.allGatherAt(output, input, sequence + 1, options)
        return Array.from(lengths, (length, rank) =>
          rank === group.rank
            ? value
            : (fromWords(output.subarray(rank * slice, (rank + 1) * slice), length) as T),
        )
      })(),
    )
  }
}

function trySkip(group: EngineProcessGroup, from: number, tag: number): void {
  try {
    group.skipMessage(from, tag)
  } catch {
    // the group was destroyed: nothing comes any more
  }
}

function wordsFor(bytes: number): number {
  return Math.ceil(bytes / 4)
}

function toWords(value: unknown): { length: Int32Array; words: Int32Array } {
  const bytes = encode(value)
  const words = new Int32Array(wordsFor(bytes.length))
  new Uint8Array(words.buffer).set(bytes)
  return { length: Int32Array.of(bytes.length), words }
}

function fromWords(words: Int32Array, length: number): unknown {
  return decode(new Uint8Array(words.buffer, words.byteOffset, length))
}
