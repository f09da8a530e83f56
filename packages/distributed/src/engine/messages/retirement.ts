import { frameKinds, spaces, type FrameHeader, type StreamAddress } from './frame.ts'
import { NO_MESSAGE } from './frame-writer.ts'
import type { Link } from './link.ts'
import { streamKey, type Stream, type Transfer } from './stream.ts'

/** Number of streams to open between two searches for idle streams. */
const ROUND = 1024

/**
 * Sequence retirement: frees the streams of unused tags. Both sides number the messages of a
 * stream, so one side alone must not drop the stream. A receiver that waits for no message reports
 * how many messages it has received (`retire`). If the sender has sent no more messages, it answers
 * `retired`, and both sides count from 0 again. Until the answer arrives, the receiver sends no
 * clear-to-send, because the numbers of messages may change.
 */
export function createRetirement({ writer, streams }: Link) {
  let opened = 0

  /** Drops a stream if it is in its initial state. */
  const drop = (stream: Stream): void => {
    const { nextSend, nextReceive, receives, unexpected, cleared, arriving, held } = stream
    const waits = [receives, unexpected, cleared].some((list) => list.length > 0)
    if (nextSend + nextReceive + arriving === 0 && !waits && held === undefined) {
      streams.delete(stream.key)
    }
  }

  const write = (kind: number, address: StreamAddress, index: number): void => {
    writer.write(kind, address, { ...NO_MESSAGE, index })
  }

  return {
    onOpened(): void {
      if (++opened < ROUND) return
      opened = 0
      try {
        for (const stream of streams.values()) {
          if (!isIdle(stream)) continue
          write(frameKinds.retire, stream, stream.nextReceive)
          stream.held = []
        }
      } catch {
        // There is no memory for more frames. The next search tries again.
      }
    },
    /** Handles a peer that has received `index` messages of a stream and waits for no more. */
    onRetire(header: FrameHeader): void {
      const { space, group, sequence, index } = header
      const stream = streams.get(streamKey(space, group, sequence))
      const isOver =
        stream?.isShared === false &&
        stream.nextSend === index &&
        stream.sends.length === 0 &&
        stream.cleared.length === 0
      if (isOver) stream.nextSend = 0
      write(frameKinds.retired, header, isOver ? index : 0)
      if (stream !== undefined) drop(stream)
    },
    /** Handles the answer to `retire`. Returns the receives that waited for it. */
    onRetired({ space, group, sequence, index }: FrameHeader): Transfer[] {
      const stream = streams.get(streamKey(space, group, sequence))
      if (stream?.held === undefined) return []
      const held = stream.held.filter((receive) => stream.receives.includes(receive))
      stream.held = undefined
      stream.nextReceive -= index
      for (const receive of stream.receives) receive.index -= index
      drop(stream)
      return held
    },
  }
}

function isIdle({ space, isShared, nextReceive, receives, unexpected, held }: Stream): boolean {
  const isWaiting = receives.length > 0 || unexpected.length > 0 || held !== undefined
  return space === spaces.message && !isShared && nextReceive > 0 && !isWaiting
}
