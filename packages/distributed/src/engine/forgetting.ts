import { frameKinds, spaces, type FrameHeader } from './frame.ts'
import { ABOUT_NOTHING, type Frames } from './frames.ts'
import { streamKey, type Stream } from './stream.ts'
import type { Transfer } from './transfer.ts'

/** Streams that are opened before idle ones are looked for. */
const ROUND = 1024

/**
 * Frees the streams of tags that are not in use. Both sides number the messages of a stream, so none
 * may forget it alone: a rank that waits for nothing there says how many it has taken (`forget`), and
 * if the sender has sent no more than these, both count from 0 again (`forgotten`). Until the answer
 * the receiver clears no large message: its number may change.
 */
export class Forgetting {
  readonly #frames: Frames
  readonly #streams: Map<number, Stream>
  #opened = 0

  constructor(frames: Frames, streams: Map<number, Stream>) {
    this.#frames = frames
    this.#streams = streams
  }

  /** A stream of messages was opened. */
  onOpened(): void {
    if (++this.#opened < ROUND) return
    this.#opened = 0
    try {
      for (const stream of this.#streams.values()) {
        if (!isIdle(stream)) continue
        this.#write(frameKinds.forget, stream, stream.nextReceive)
        stream.held = []
      }
    } catch {
      // no room for more frames now: the next round asks again
    }
  }

  /** The peer has taken so many messages, and waits for none. */
  onForget(header: FrameHeader): void {
    const { space, group, sequence, index } = header
    const stream = this.#streams.get(streamKey(space, group, sequence))
    const isOver =
      stream?.nextSend === index && stream.sends.length === 0 && stream.clearances.length === 0
    if (isOver) stream.nextSend = 0
    this.#write(frameKinds.forgotten, header, isOver ? index : 0)
    if (stream !== undefined) this.#tidy(stream)
  }

  /** The answer: what counts from 0 again. Returns the receives that can be cleared now. */
  onForgotten({ space, group, sequence, index }: FrameHeader): Transfer[] {
    const stream = this.#streams.get(streamKey(space, group, sequence))
    if (stream?.held === undefined) return []
    const held = stream.held.filter((receive) => stream.receives.includes(receive))
    stream.held = undefined
    stream.nextReceive -= index
    for (const receive of stream.receives) receive.index -= index
    this.#tidy(stream)
    return held
  }

  #tidy(stream: Stream): void {
    const { nextSend, nextReceive, receives, unexpected, clearances, coming, held } = stream
    const waits = [receives, unexpected, clearances].some((list) => list.length > 0)
    if (nextSend + nextReceive + coming === 0 && !waits && held === undefined) {
      this.#streams.delete(stream.key)
    }
  }

  #write(kind: number, address: Pick<Stream, 'space' | 'group' | 'sequence'>, index: number): void {
    this.#frames.write(kind, address, { ...ABOUT_NOTHING, index })
  }
}

function isIdle({ space, nextReceive, receives, unexpected, held }: Stream): boolean {
  const isWaiting = receives.length > 0 || unexpected.length > 0 || held !== undefined
  return space === spaces.message && nextReceive > 0 && !isWaiting
}
