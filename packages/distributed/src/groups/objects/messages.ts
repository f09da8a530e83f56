import { ANY_SOURCE } from '../../operation.ts'
import type { ReceivedObject, Source, Work } from '../../process-group.ts'
import type { CallOptions, MessageOptions } from '../../call-options.ts'
import { checkSource, checkTag } from '../calls/arguments.ts'
import { recvCall, sendCall, skipCall } from '../calls/messages.ts'
import { ObjectCollectives } from './collectives.ts'
import { decodeObject, encodeObject, roomFor } from './encoding.ts'
import { SteppedWork, type Steps } from './stepped-work.ts'

/** First tag of object messages. User tags are smaller. */
const OBJECT_TAGS = 2 ** 31

/**
 * Messages with objects that MessagePack can encode: a message with the length, then one with the
 * payload. Use it for control data, not for tensors.
 */
export class ObjectMessages extends ObjectCollectives {
  /**
   * The last receive for each tag and source. A new receive waits for earlier receives that may take
   * the same messages.
   */
  readonly #receives = new Map<number, Map<number, SteppedWork<unknown>>>()
  #count = 0

  sendObject(value: unknown, to: number, options?: MessageOptions): Work {
    const tag = OBJECT_TAGS + checkTag(options?.tag)
    const { length, bytes } = encodeObject(value)
    const head = this.operations.start(sendCall(this, length, to, tag, options))
    const payload = this.operations.start(sendCall(this, bytes, to, tag, options))
    return new SteppedWork<void>(
      this.#count++,
      (function* () {
        yield head
        yield payload
      })(),
    )
  }

  recvObject<From extends Source>(
    from: From,
    options?: MessageOptions,
  ): Work<From extends number ? unknown : ReceivedObject>
  recvObject(from: Source, options?: MessageOptions): Work<unknown> {
    const source = checkSource('recvObject', this, from)
    const tag = checkTag(options?.tag)
    const last = this.#receives.get(tag) ?? new Map<number, SteppedWork<unknown>>()
    this.#receives.set(tag, last)
    const rivals =
      source === ANY_SOURCE ? [...last.values()] : [last.get(source), last.get(ANY_SOURCE)]
    const steps = this.#receiveAfter(rivals, from, OBJECT_TAGS + tag, options)
    const work = new SteppedWork<unknown>(this.#count++, steps)
    if (source === ANY_SOURCE) last.clear()
    last.set(source, work)
    return work
  }

  *#receiveAfter(
    before: readonly (SteppedWork<unknown> | undefined)[],
    from: Source,
    tag: number,
    options: CallOptions | undefined,
  ): Steps<unknown> {
    yield* waitFor(before)
    const length = new Int32Array(1)
    const takesMessage = options?.signal?.aborted !== true
    const isAny = typeof from !== 'number'
    let source: number
    try {
      const head = this.operations.start(recvCall(this, length, from, tag, options))
      yield head
      source = head.wait()
    } catch (error) {
      // Skip the payload too, so that the next receive does not take it for a length.
      if (takesMessage && !isAny) this.#trySkip(from, tag)
      throw error
    }
    const bytes = roomFor(length)
    yield this.operations.start(recvCall(this, bytes, source, tag, options))
    const value = decodeObject(bytes)
    return isAny ? { value, source } : value
  }

  #trySkip(from: number, tag: number): void {
    if (from === this.rank) return
    try {
      this.operations.start(skipCall(from, tag))
    } catch {
      // The group was destroyed, so no further message arrives.
    }
  }
}

function* waitFor(works: readonly (SteppedWork<unknown> | undefined)[]): Steps<void> {
  for (const work of works) {
    try {
      if (work?.isCompleted() === false) yield work
    } catch {
      // Ignore the error: the caller of the earlier receive gets it.
    }
  }
}
