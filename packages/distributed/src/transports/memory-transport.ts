import type { Heap } from '../arena/heap.ts'
import { sameFingerprint } from '../operation.ts'
import type { SharedSlots, SlotHeader } from './shared-slots.ts'
import { CLOSED, type Transport } from './transport.ts'

/** Capacity of one direction in bytes. It is small, so that tests see full streams. */
const PIPE_BYTES = 64 * 1024
/** Number of groups with slots. */
const GROUPS = 4
/**
 * Number of groups that can expose buffers. It is small, so that tests also cover groups that
 * cannot.
 */
const EXPOSING_GROUPS = 6
/** Bytes of a slot. It is small, so that tests see buffers that do not fit. */
const SLOT = 4 * 1024
/** Offset of the slots in a heap; offset 0 would mean that there is no buffer. */
const FIRST_SLOT = 64

class Pipe {
  readonly #bytes = new Uint8Array(PIPE_BYTES)
  #read = 0
  #written = 0
  closed = false

  get isEmpty(): boolean {
    return this.#read === this.#written
  }

  write(source: Uint8Array): number {
    const length = Math.min(source.length, PIPE_BYTES - (this.#written - this.#read))
    for (let done = 0; done < length;) {
      const at = (this.#written + done) % PIPE_BYTES
      const part = Math.min(length - done, PIPE_BYTES - at)
      this.#bytes.set(source.subarray(done, done + part), at)
      done += part
    }
    this.#written += length
    return length
  }

  read(target: Uint8Array): number {
    const length = Math.min(target.length, this.#written - this.#read)
    for (let done = 0; done < length;) {
      const at = (this.#read + done) % PIPE_BYTES
      const part = Math.min(length - done, PIPE_BYTES - at)
      target.set(this.#bytes.subarray(at, at + part), done)
      done += part
    }
    this.#read += length
    return length
  }
}

interface Publications {
  epoch: number
  steps: number
  withdrawn: number
  /** The headers of the last two epochs, indexed by epoch modulo 2. */
  readonly headers: SlotHeader[]
  /** Heap offsets of the exposed buffers of the last two epochs, indexed by epoch modulo 2. */
  readonly exposed: number[]
}

/**
 * The slots of an in-process world. Each rank copies a published buffer into the heaps of all ranks
 * of its host.
 */
class MemorySlots {
  readonly #hosts: readonly number[]
  readonly #heaps: readonly Heap[]
  /** Publications, indexed by rank and then by group. */
  readonly #publications: readonly (readonly Publications[])[]

  /** @param heaps - heaps by rank; the caller fills the array later */
  constructor(hosts: readonly number[], heaps: readonly Heap[]) {
    this.#hosts = hosts
    this.#heaps = heaps
    this.#publications = hosts.map(() =>
      Array.from({ length: EXPOSING_GROUPS }, () => ({
        epoch: 0,
        steps: 0,
        withdrawn: 0,
        headers: [],
        exposed: [],
      })),
    )
  }

  /** Heap offset of the end of the slots; the same in every heap. */
  get end(): number {
    return FIRST_SLOT + this.#hosts.length * GROUPS * 2 * SLOT
  }

  slotsOf(rank: number): SharedSlots {
    const of = (peer: number, group: number): Publications => this.#publications[peer]![group]!
    const reaches = (peer: number): boolean => this.#hosts[peer] === this.#hosts[rank]
    const slotOf = (peer: number, group: number, epoch: number): number =>
      FIRST_SLOT + ((peer * GROUPS + group) * 2 + (epoch & 1)) * SLOT
    const expose: SharedSlots['expose'] = (group, epoch, header, at) => {
      const own = of(rank, group)
      // Copy the header, as in shared memory: a prepared operation changes its header for the next
      // run.
      own.headers[epoch & 1] = { ...header }
      own.exposed[epoch & 1] = at
      own.epoch = epoch
    }
    return {
      groups: GROUPS,
      exposingGroups: EXPOSING_GROUPS,
      slotBytes: SLOT,
      isAwaited: false,
      reaches,
      slotOf,
      publish: (group, epoch, header, at, bytes) => {
        const source = this.#heaps[rank]!.bytes.subarray(at, at + bytes)
        for (const [peer, heap] of this.#heaps.entries()) {
          if (reaches(peer)) heap.bytes.set(source, slotOf(rank, group, epoch))
        }
        expose(group, epoch, header, at)
      },
      expose,
      exposedAt: (peer, group, epoch) => of(peer, group).exposed[epoch & 1]!,
      advance: (group, steps) => {
        of(rank, group).steps = steps
      },
      withdraw: (group, epoch) => {
        of(rank, group).withdrawn = epoch
      },
      hasWithdrawn: (peer, group, epoch) => of(peer, group).withdrawn === epoch,
      hasEntered: (peer, group, epoch) => ((of(peer, group).epoch - epoch) | 0) >= 0,
      hasCompleted: (peer, group, steps) => ((of(peer, group).steps - steps) | 0) >= 0,
      matches: (peer, group, epoch, { sequence, fingerprint }) => {
        const theirs = of(peer, group).headers[epoch & 1]!
        return theirs.sequence === sequence && sameFingerprint(theirs.fingerprint, fingerprint)
      },
      headerOf: (peer, group, epoch) => of(peer, group).headers[epoch & 1]!,
    }
  }
}

/** The pipes between all ranks of an in-process world. */
export class MemoryNetwork {
  readonly #pipes: Pipe[][]
  /** The host number of each rank, as in `Transport.hosts`. */
  readonly hosts: readonly number[] | undefined
  /** The heaps, indexed by rank. */
  readonly heaps: Heap[] = []
  readonly slots: MemorySlots | undefined

  constructor(size: number, hosts?: readonly number[]) {
    this.hosts = hosts
    this.slots = hosts && new MemorySlots(hosts, this.heaps)
    this.#pipes = Array.from({ length: size }, () => Array.from({ length: size }, () => new Pipe()))
  }

  pipe(from: number, to: number): Pipe {
    return this.#pipes[from]![to]!
  }
}

/**
 * Byte streams within one thread. `portion` chooses how many of the available bytes to move. A
 * seeded world thus tests many ways to split a stream. `alter` changes bytes in transit.
 */
export class MemoryTransport implements Transport {
  readonly name = 'memory'
  readonly reservedBytes: number
  readonly slots: SharedSlots | undefined
  readonly #network: MemoryNetwork
  readonly #rank: number
  readonly #size: number
  readonly #heap: Heap
  readonly #portion: (bytes: number) => number
  readonly #alter: (bytes: Uint8Array) => Uint8Array

  constructor(
    network: MemoryNetwork,
    rank: number,
    size: number,
    heap: Heap,
    portion: (bytes: number) => number,
    alter = (bytes: Uint8Array): Uint8Array => bytes,
  ) {
    this.#network = network
    this.#rank = rank
    this.#size = size
    this.#heap = heap
    this.#portion = portion
    this.#alter = alter
    network.heaps[rank] = heap
    this.reservedBytes = network.slots?.end ?? 0
    this.slots = network.slots?.slotsOf(rank)
  }

  get hosts(): readonly number[] | undefined {
    return this.#network.hosts
  }

  sharesMemory(peer: number): boolean {
    const { hosts } = this.#network
    return hosts !== undefined && hosts[peer] === hosts[this.#rank]
  }

  get(peer: number, at: number, from: number, bytes: number): void {
    const source = this.#network.heaps[peer]!
    this.#heap.bytes.set(source.bytes.subarray(from, from + bytes), at)
  }

  trySend(peer: number, at: number, length: number): number {
    const pipe = this.#network.pipe(this.#rank, peer)
    if (pipe.closed) return CLOSED
    return pipe.write(this.#alter(this.#heap.bytes.subarray(at, at + this.#portion(length))))
  }

  tryReceive(peer: number, at: number, length: number): number {
    const pipe = this.#network.pipe(peer, this.#rank)
    if (pipe.isEmpty) return pipe.closed ? CLOSED : 0
    return pipe.read(this.#heap.bytes.subarray(at, at + this.#portion(length)))
  }

  wantSend(): void {
    // Nothing to do: the world polls every engine in turn.
  }

  closeReason(): string {
    return 'its in-process transport was closed'
  }

  closePeer(peer: number): void {
    this.#network.pipe(this.#rank, peer).closed = true
    this.#network.pipe(peer, this.#rank).closed = true
  }

  /** Ends the streams to all peers, or only that to `only`. */
  close(only?: number): void {
    for (let peer = 0; peer < this.#size; peer++) {
      const isMeant = only === undefined ? peer !== this.#rank : peer === only
      if (isMeant) this.#network.pipe(this.#rank, peer).closed = true
    }
  }
}
