import {
  addressOf,
  closeSocket,
  drainEventfd,
  EAGAIN,
  EINTR,
  errnoName,
  openEventfd,
  pollFds,
  POLLIN,
  POLLOUT,
  receiveBytes,
  sendBytes,
  tuneTcp,
  yieldCore,
} from '@tsrun/native'
import type { Heap } from '../../arena/heap.ts'
import { CLOSED, type BlockingTransport, type LocalPlace } from '../transport.ts'

/**
 * Unacknowledged data ends a connection after so many milliseconds (a pulled cable). The kernel
 * counts a peer that is there but does not read as well, so it must not be short: a stopped process,
 * or an inline engine whose rank computes.
 */
const USER_TIMEOUT = 300_000

/** libc sockets: payloads go straight between the kernel and the arena. */
export class TcpTransport implements BlockingTransport {
  readonly name = 'tcp'
  readonly doorbell = openEventfd()
  readonly place: LocalPlace | undefined
  readonly #base: number
  /** Descriptor of each peer; -1 for this rank and for peers that are gone. */
  readonly #fds: number[]
  readonly #reasons: string[]
  /** One struct pollfd a rank, the doorbell last: [fd, events | revents << 16]. */
  readonly #pollfds: Int32Array
  readonly #pollAddress: number

  constructor(heap: Heap, fds: readonly (number | undefined)[], place?: LocalPlace) {
    this.place = place
    this.#base = addressOf(heap.bytes)
    this.#fds = fds.map((fd) => fd ?? -1)
    this.#reasons = fds.map(() => '')
    this.#pollfds = new Int32Array(2 * (fds.length + 1))
    this.#pollAddress = addressOf(this.#pollfds)
    for (const [peer, fd] of [...this.#fds, this.doorbell].entries()) {
      this.#pollfds[2 * peer] = fd
      this.#pollfds[2 * peer + 1] = POLLIN
    }
    for (const fd of this.#fds) if (fd >= 0) tuneTcp(fd, USER_TIMEOUT)
  }

  trySend(peer: number, at: number, length: number, more: boolean): number {
    const fd = this.#fds[peer]!
    if (fd < 0 || this.#reasons[peer] !== '') return CLOSED
    const sent = sendBytes(fd, this.#base + at, length, more)
    if (sent >= 0) return sent
    if (isTransient(sent)) return 0
    // nothing more can be sent, but what has come can still be read
    this.#reasons[peer] = failure(sent)
    return CLOSED
  }

  tryReceive(peer: number, at: number, length: number): number {
    const fd = this.#fds[peer]!
    if (fd < 0) return CLOSED
    const taken = receiveBytes(fd, this.#base + at, length)
    if (taken > 0) return taken
    if (taken === 0) return this.#end(peer, 'it closed the connection')
    return isTransient(taken) ? 0 : this.#end(peer, failure(taken))
  }

  wantSend(peer: number, wanted: boolean): void {
    this.#pollfds[2 * peer + 1] = wanted ? POLLIN | POLLOUT : POLLIN
  }

  closeReason(peer: number): string {
    return this.#reasons[peer] ?? ''
  }

  closePeer(peer: number): void {
    this.#end(peer, 'this rank closed the connection')
  }

  close(): void {
    for (const peer of this.#fds.keys()) this.closePeer(peer)
    closeSocket(this.doorbell)
  }

  sleep(milliseconds: number): void {
    const ready = pollFds(this.#pollAddress, this.#fds.length + 1, milliseconds)
    if (ready > 0) drainEventfd(this.doorbell)
  }

  /** Whether `sleep` has seen something happen on the stream from `peer`. */
  isReadable(peer: number): boolean {
    return this.#pollfds[2 * peer + 1]! >>> 16 !== 0
  }

  yield(): void {
    yieldCore()
  }

  #end(peer: number, reason: string): typeof CLOSED {
    const fd = this.#fds[peer]!
    if (fd >= 0) {
      closeSocket(fd)
      this.#reasons[peer] ||= reason
      this.#fds[peer] = -1
      this.#pollfds[2 * peer] = -1
    }
    return CLOSED
  }
}

function isTransient(result: number): boolean {
  return result === -EAGAIN || result === -EINTR
}

function failure(result: number): string {
  return `the connection failed with ${errnoName(-result)}`
}
