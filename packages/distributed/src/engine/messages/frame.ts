import type { Heap } from '../../arena/heap.ts'
import { LARGEST_GROUP, type Fingerprint } from '../../operation.ts'

/**
 * A frame is a header of sixteen little-endian 32-bit words and a payload of raw bytes:
 *
 *     0 magic "TSR2"        4 message index       8 count, high word
 *     1 kind | space << 8   5 fingerprint.kind    9 payload bytes, low word
 *     2 group               6 fingerprint.root   10 payload bytes, high word
 *     3 sequence or tag     7 count, low word    11 credit: eager bytes consumed so far
 *    12 place              13 guard              14, 15 zero
 *
 * Place and guard are offsets in the sender's heap; only ranks that share memory use them.
 */
export const HEADER_BYTES = 64
const MAGIC = 0x32525354

/** Largest payload in bytes to send eagerly: in one block with the header. */
export const EAGER_LIMIT = 16 * 1024

/**
 * The kinds of frames. *Eager* frames carry small payloads at once, as long as the receiver has
 * memory for unexpected messages. Other messages use *rendezvous*: the sender may send a request to
 * send. The receiver answers with a clear-to-send once it has a place for the payload. Only then
 * does the sender send `data`. An unexpected message thus never blocks the stream behind it.
 *
 * Ranks that share memory use a *rendezvous get*, like an RDMA read. The sender exposes the payload
 * in place (`exposed`). Once the receiver has a place for the payload, it copies the payload and
 * reports that (`getDone`). A sender that withdraws first clears the word at `guard`, which
 * invalidates any copy made meanwhile.
 */
export const frameKinds = {
  eager: 1,
  requestToSend: 2,
  clearToSend: 3,
  data: 4,
  credit: 5,
  fault: 6,
  close: 7,
  /** Cancels a send that the receiver has cleared, or whose payload is exposed. */
  withdrawn: 8,
  /** Asks the receiver whether it runs the same collective, after a long wait. */
  inquiry: 9,
  exposed: 10,
  getDone: 11,
  /** A message between the diagnosis code of two ranks; `Notice` lists its kinds. */
  notice: 12,
  /** `retire`: the receiver waits for no message. `retired`: the answer. */
  retire: 13,
  retired: 14,
} as const

/** Independent series of messages between two ranks of a group. */
export const spaces = { collective: 0, message: 1 } as const

/** The stream of messages that a frame belongs to. */
export interface StreamAddress {
  readonly space: number
  readonly group: number
  /** Sequence of the collective, or tag of the message. */
  readonly sequence: number
}

export interface FrameHeader extends StreamAddress {
  readonly kind: number
  /** Number of the message in its stream and direction. */
  readonly index: number
  readonly fingerprint: Fingerprint
  readonly bytes: number
  readonly credit: number
  /** Offset of an exposed payload. */
  readonly place: number
  /** Identifies an exposed payload, also in the receiver's answer. */
  readonly guard: number
}

const kinds: ReadonlySet<number> = new Set(Object.values(frameKinds))

/** Writes a header at the 4-byte aligned offset `at`. */
export function writeHeader(heap: Heap, at: number, header: FrameHeader): void {
  const { unsigned } = heap
  const word = at >>> 2
  const { fingerprint, bytes } = header
  unsigned[word] = MAGIC
  unsigned[word + 1] = header.kind | (header.space << 8)
  unsigned[word + 2] = header.group
  unsigned[word + 3] = header.sequence
  unsigned[word + 4] = header.index
  unsigned[word + 5] = fingerprint.kind
  unsigned[word + 6] = fingerprint.root
  unsigned[word + 7] = fingerprint.count
  unsigned[word + 8] = fingerprint.count / 4294967296
  unsigned[word + 9] = bytes
  unsigned[word + 10] = bytes / 4294967296
  unsigned[word + 11] = header.credit
  unsigned[word + 12] = header.place
  unsigned[word + 13] = header.guard
  unsigned[word + 14] = 0
  unsigned[word + 15] = 0
}

/** Reads the header at any offset. Returns undefined if the magic number is wrong. */
export function readHeader(view: DataView, at: number): FrameHeader | undefined {
  if (view.getUint32(at, true) !== MAGIC) return undefined
  const kind = view.getUint32(at + 4, true)
  return {
    kind: kind & 255,
    space: kind >>> 8,
    group: view.getUint32(at + 8, true),
    sequence: view.getUint32(at + 12, true),
    index: view.getUint32(at + 16, true),
    fingerprint: {
      kind: view.getUint32(at + 20, true) | 0,
      root: view.getUint32(at + 24, true),
      count: view.getUint32(at + 28, true) + view.getUint32(at + 32, true) * 4294967296,
    },
    bytes: view.getUint32(at + 36, true) + view.getUint32(at + 40, true) * 4294967296,
    credit: view.getUint32(at + 44, true),
    place: view.getUint32(at + 48, true),
    guard: view.getUint32(at + 52, true),
  }
}

/**
 * Whether a header is plausible. Its kind and space must be known. A payload that is stored before
 * it is checked must be small.
 */
export function isPlausible({ kind, space, group, bytes }: FrameHeader): boolean {
  const isStored =
    kind === frameKinds.eager || kind === frameKinds.fault || kind === frameKinds.notice
  return (
    kinds.has(kind) &&
    (space === spaces.collective || space === spaces.message) &&
    group <= LARGEST_GROUP &&
    (!isStored || bytes <= EAGER_LIMIT)
  )
}
