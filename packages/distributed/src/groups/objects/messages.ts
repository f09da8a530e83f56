import type {
  CallOptions,
  MessageOptions,
  ReceivedObject,
  Source,
  Work,
} from '../../process-group.ts'
import { checkRoot, checkSource, checkTag } from '../calls/arguments.ts'
import type { EngineProcessGroup } from '../group.ts'
import { recvCall, sendCall, skipCall } from '../calls/messages.ts'
import { fromWords, toWords, wordsFor } from './encoding.ts'
import { SteppedWork, type FollowedWork } from '../calls/stepped-work.ts'

/** Tags from here on belong to object messages, apart from the user's. */
const OBJECT_TAGS = 2 ** 31

/** The last receives of one tag: the next one waits for those that may take its messages. */
interface Order {
  readonly bySource: Map<number, SteppedWork<unknown>>
  ofAny: SteppedWork<unknown> | undefined
}

/**
 * Values of any shape that MessagePack can carry, as a length message and a payload of words.
 * For control data: tensors travel as typed arrays.
 */
export class ObjectMessages {
  readonly #group: EngineProcessGroup
  readonly #orders = new Map<number, Order>()
  #count = 0

  constructor(group: EngineProcessGroup) {
    this.#group = group
  }

  send(value: unknown, to: number, options: MessageOptions | undefined): Work {
    const group = this.#group
    const tag = OBJECT_TAGS + checkTag(options?.tag ?? 0)
    const { length, words } = toWords(value)
    const head = group.message(sendCall(group, length, to, tag, options))
    const body = group.message(sendCall(group, words, to, tag, options))
    return new SteppedWork<void>(
      this.#count++,
      (function* () {
        yield head
        yield body
      })(),
    )
  }

  receive(from: number, options: MessageOptions | undefined): Work<unknown> {
    checkRoot('recvObject', this.#group, from)
    const tag = checkTag(options?.tag ?? 0)
    const { bySource, ofAny } = this.#orderOf(tag)
    const work = new SteppedWork<unknown>(
      this.#count++,
      receiveAfter([bySource.get(from), ofAny], this.#group, from, OBJECT_TAGS + tag, options),
    )
    bySource.set(from, work)
    return work
  }

  receiveAny(options: MessageOptions | undefined): Work<ReceivedObject> {
    const group = this.#group
    checkSource('recvObject', group, 'any')
    const tag = checkTag(options?.tag ?? 0)
    const order = this.#orderOf(tag)
    const before = [...order.bySource.values(), order.ofAny]
    const steps = receiveFromAny(before, group, OBJECT_TAGS + tag, options)
    const work = new SteppedWork<ReceivedObject>(this.#count++, steps)
    order.bySource.clear()
    order.ofAny = work
    return work
  }

  #orderOf(tag: number): Order {
    const order = this.#orders.get(tag) ?? { bySource: new Map(), ofAny: undefined }
    this.#orders.set(tag, order)
    return order
  }
}

type Steps<T> = Generator<FollowedWork<unknown>, T, void>

function* receiveAfter(
  before: readonly (SteppedWork<unknown> | undefined)[],
  group: EngineProcessGroup,
  from: number,
  tag: number,
  options: CallOptions | undefined,
): Steps<unknown> {
  yield* waitFor(before)
  const length = new Int32Array(1)
  const takesTurn = options?.signal?.aborted !== true
  try {
    yield group.messageFor(recvCall(group, length, from, tag, options))
  } catch (error) {
    // the payload that belongs to it must not be taken for the next length
    if (takesTurn) trySkip(group, from, tag)
    throw error
  }
  return yield* receivePayload(group, length[0]!, from, tag, options)
}

function* receiveFromAny(
  before: readonly (SteppedWork<unknown> | undefined)[],
  group: EngineProcessGroup,
  tag: number,
  options: CallOptions | undefined,
): Steps<ReceivedObject> {
  yield* waitFor(before)
  const length = new Int32Array(1)
  const head = group.messageFor(recvCall(group, length, 'any', tag, options))
  yield head
  const source = head.wait()
  const value = yield* receivePayload(group, length[0]!, source, tag, options)
  return { value, source }
}

function* receivePayload(
  group: EngineProcessGroup,
  length: number,
  from: Source,
  tag: number,
  options: CallOptions | undefined,
): Steps<unknown> {
  const words = new Int32Array(wordsFor(length))
  yield group.messageFor(recvCall(group, words, from, tag, options))
  return fromWords(words, length)
}

/** Waits until these receives have had their messages, or have failed. */
function* waitFor(works: readonly (SteppedWork<unknown> | undefined)[]): Steps<void> {
  for (const work of works) {
    try {
      if (work?.isCompleted() === false) yield work
    } catch {
      // it fails alone
    }
  }
}

function trySkip(group: EngineProcessGroup, from: number, tag: number): void {
  if (from === group.rank) return
  try {
    group.message(skipCall(from, tag))
  } catch {
    // the group was destroyed: nothing comes any more
  }
}
