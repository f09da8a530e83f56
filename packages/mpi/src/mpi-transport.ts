import { monotonicNow, tsrError } from '@tsrun/core'
import {
  instantiateKernels,
  type BlockingTransport,
  type Heap,
  type Kernels,
} from '@tsrun/distributed/transport'
import {
  addressOf,
  closeNative,
  drainEventfd,
  openEventfd,
  pollFds,
  POLLIN,
  yieldCore,
} from '@tsrun/native'
import { Communicators } from './communicators.ts'
import type { LibMpi } from './libmpi.ts'
import { MpiCollectives } from './collectives.ts'
import { layOut, low, NativeMemory, SENDS, type Layout } from './memory.ts'

/*
 * Sends streams as MPI messages. Each message is a piece of the stream between two ranks, copied
 * through a slot at the low end of the heap. MPI keeps the messages between two ranks in order. MPI
 * cannot wake a waiting thread, so the thread polls: constantly at first, then less and less often.
 */

/**
 * Milliseconds for which to poll constantly after data has moved: first without, then with a
 * running collective.
 */
const RESTLESS = 1
const RESTLESS_IN_COLLECTIVE = 50
/** Milliseconds between two polls: first after constant polling, then after SECOND. */
const NAP = 0.1
const LONG_NAP = 2
const SECOND = 1000
/** Milliseconds that closing waits for pending sends. */
const CLOSE_TIME = 1000

/** The unread data in a slot. */
interface Arrival {
  readonly slot: number
  from: number
  readonly to: number
}

export class MpiTransport implements BlockingTransport {
  readonly name = 'mpi'
  readonly movesWhenLookedAt = true
  readonly doorbell = openEventfd()
  readonly collectives: MpiCollectives
  readonly reservedBytes: number
  readonly #mpi: LibMpi
  readonly #native: NativeMemory
  readonly #layout: Layout
  readonly #kernels: Kernels
  readonly #communicator: number
  /** Slots of posted receives, in the order in which they were posted and in which they fill. */
  readonly #posted: number[] = []
  readonly #arrivals: Arrival[][]
  /** For each send slot: whether its message is pending. */
  readonly #sending: boolean[]
  readonly #pollfd = Int32Array.of(this.doorbell, POLLIN)
  readonly #pollAddress = addressOf(this.#pollfd)
  readonly #bed = new Int32Array(new SharedArrayBuffer(4))
  #lastMoved = monotonicNow()

  /** Must be called by all ranks together. @throws ERR_TSR_ENGINE_MEMORY, ERR_TSR_MPI */
  constructor(mpi: LibMpi, heap: Heap, rank: number, worldSize: number) {
    this.#mpi = mpi
    this.#native = new NativeMemory(heap.bytes, mpi.abi)
    this.#kernels = instantiateKernels(heap.memory)
    const layout = layOut(worldSize, heap.engineBytes)
    if (layout === undefined) {
      const facts = { rank, bytes: 2 * SENDS * worldSize * 4096, used: 0 }
      throw tsrError('ERR_TSR_ENGINE_MEMORY', { ...facts, capacity: heap.engineBytes })
    }
    this.#layout = layout
    this.reservedBytes = layout.end
    const communicators = new Communicators(mpi, this.#native)
    this.#communicator = communicators.duplicateWorld()
    this.collectives = new MpiCollectives(mpi, this.#native, communicators)
    this.#arrivals = Array.from({ length: worldSize }, () => [])
    this.#sending = Array.from({ length: layout.sends.length }, () => false)
    for (const slot of layout.receives.keys()) this.#post(slot)
  }

  trySend(peer: number, at: number, length: number): number {
    const slot = this.#freeSend(peer)
    if (slot === undefined) return 0
    const { data, request } = this.#layout.sends[slot]!
    const bytes = Math.min(length, this.#layout.slotBytes)
    this.#kernels.copy(data, at, bytes)
    const { abi, call } = this.#mpi
    const target = [peer, 0, this.#communicator, this.#native.address(request)] as const
    call('Isend', this.#native.address(data), bytes, abi.handles.byte, ...target)
    this.#sending[slot] = true
    this.#lastMoved = monotonicNow()
    return bytes
  }

  tryReceive(peer: number, at: number, length: number): number {
    const arrivals = this.#arrivals[peer]!
    if (arrivals.length === 0) this.#look()
    const [first] = arrivals
    if (first === undefined) return 0
    const bytes = Math.min(length, first.to - first.from)
    this.#kernels.copy(at, this.#layout.receives[first.slot]!.data + first.from, bytes)
    first.from += bytes
    if (first.from === first.to) {
      arrivals.shift()
      this.#post(first.slot)
    }
    return bytes
  }

  wantSend(): void {
    // A thread that waits for MPI polls, so it needs no wake-up.
  }

  closeReason(): string {
    return 'this rank closed the connection'
  }

  closePeer(): void {
    // Do nothing: MPI ends connections only when all processes end.
  }

  sleep(milliseconds: number): void {
    const idle = monotonicNow() - this.#lastMoved
    const restless = this.collectives.isBusy ? RESTLESS_IN_COLLECTIVE : RESTLESS
    if (idle < restless) yieldCore()
    else if (idle < SECOND) Atomics.wait(this.#bed, 0, 0, Math.min(milliseconds, NAP))
    else if (pollFds(this.#pollAddress, 1, Math.min(milliseconds, LONG_NAP)) > 0) {
      drainEventfd(this.doorbell)
      this.#lastMoved = monotonicNow()
    }
  }

  yield(): void {
    yieldCore()
  }

  close(): void {
    const end = monotonicNow() + CLOSE_TIME
    this.collectives.abandon()
    for (const slot of this.#posted) {
      const { request } = this.#layout.receives[slot]!
      this.#mpi.call('Cancel', this.#native.address(request))
    }
    while (this.#hasRequests() && monotonicNow() < end) yieldCore()
    closeNative(this.doorbell)
  }

  #hasRequests(): boolean {
    const { statusIgnore } = this.#mpi.abi
    const { receives } = this.#layout
    const isOpen = (slot: number): boolean => !this.#test(receives[slot]!.request, statusIgnore)
    return this.#posted.some(isOpen) || this.#sending.some((_, slot) => this.#isSending(slot))
  }

  #post(slot: number): void {
    const { data, request } = this.#layout.receives[slot]!
    const { abi, call } = this.#mpi
    const source = [abi.anySource, 0, this.#communicator, this.#native.address(request)] as const
    const { slotBytes } = this.#layout
    call('Irecv', this.#native.address(data), slotBytes, abi.handles.byte, ...source)
    this.#posted.push(slot)
  }

  /** Reads the messages that have arrived, in the order in which MPI fills the receives. */
  #look(): void {
    for (let slot = this.#posted[0]; slot !== undefined; slot = this.#posted[0]) {
      const { request } = this.#layout.receives[slot]!
      if (!this.#test(request, this.#native.address(low.status))) return
      this.#posted.shift()
      const { abi, call } = this.#mpi
      const count = this.#native.address(low.count)
      call('Get_count', this.#native.address(low.status), abi.handles.byte, count)
      const source = this.#native.integer(low.status + abi.sourceAt)
      this.#arrivals[source]!.push({ slot, from: 0, to: this.#native.integer(low.count) })
      this.#lastMoved = monotonicNow()
    }
  }

  #freeSend(peer: number): number | undefined {
    for (let slot = peer * SENDS; slot < (peer + 1) * SENDS; slot++) {
      if (!this.#isSending(slot)) return slot
    }
    return undefined
  }

  #isSending(slot: number): boolean {
    if (this.#sending[slot] !== true) return false
    const { abi } = this.#mpi
    if (!this.#test(this.#layout.sends[slot]!.request, abi.statusIgnore)) return true
    this.#sending[slot] = false
    return false
  }

  #test(request: number, status: number): boolean {
    const flag = this.#native.address(low.flag)
    this.#mpi.call('Test', this.#native.address(request), flag, status)
    return this.#native.integer(low.flag) !== 0
  }
}
