import { isTsrError, type SessionKeys } from '@tsrun/core'
import {
  acceptTcp,
  addressOf,
  closeNative,
  connectError,
  connectTcp,
  EADDRINUSE,
  EAGAIN,
  EINTR,
  errnoName,
  listenTcp,
  peerAddress,
  pollFds,
  POLLIN,
  POLLOUT,
  receiveBytes,
  sendBytes,
  tuneTcp,
  yieldCore,
} from '@tsrun/native'
import type { Heap } from '../arena/heap.ts'
import {
  listenAtFreePort,
  type ByteChannel,
  type Dialer,
  type Endpoint,
  type ListenOptions,
} from './dialer.ts'
import { PollSet } from './poll-set.ts'
import { readiness } from './readiness.ts'
import { ALTERED, sealStream, type SealedStream } from './sealed/sealed-stream.ts'
import { ALTERED_REASON, CLOSED, type BlockingTransport, type LocalPlace } from './transport.ts'

/**
 * Milliseconds after which unacknowledged data ends a connection, for example if a cable was
 * pulled. The time must be long, because a live peer may not read for a while: its process may be
 * stopped, or its inline engine may wait while the rank computes.
 */
const USER_TIMEOUT = 300_000

/** Uses libc sockets: payloads move directly between the kernel and the arena. */
export class TcpTransport implements BlockingTransport {
  readonly name = 'tcp'
  readonly place: LocalPlace | undefined
  readonly #base: number
  /** Descriptor of each peer; -1 for this rank and for closed peers. */
  readonly #fds: number[]
  readonly #reasons: string[]
  readonly #polls: PollSet
  /** The encryption of each peer's stream; undefined if the stream is not encrypted. */
  readonly #seals: readonly (SealedStream | undefined)[]

  /**
   * @param keys - keys of the connection to each rank; undefined if the connection is not encrypted
   */
  constructor(
    heap: Heap,
    fds: readonly (number | undefined)[],
    polls = new PollSet(fds.length),
    place?: LocalPlace,
    keys: readonly (SessionKeys | undefined)[] = [],
  ) {
    this.place = place
    this.#polls = polls
    this.#base = addressOf(heap.bytes)
    const region = { bytes: heap.bytes, address: this.#base }
    this.#seals = keys.map((each) => each && sealStream(region, each))
    this.#fds = fds.map((fd) => fd ?? -1)
    this.#reasons = fds.map(() => '')
    for (const [peer, fd] of this.#fds.entries()) {
      if (fd < 0) continue
      tuneTcp(fd, USER_TIMEOUT)
      polls.watch(peer, fd, POLLIN)
    }
  }

  get doorbell(): number {
    return this.#polls.doorbell
  }

  trySend(peer: number, at: number, length: number, more: boolean): number {
    const seal = this.#seals[peer]
    if (seal === undefined) return this.#send(peer, this.#base + at, length, more)
    return seal.send(at, length, more, (region, from, bytes, follows) =>
      this.#send(peer, region.address + from, bytes, follows),
    )
  }

  tryReceive(peer: number, at: number, length: number): number {
    const seal = this.#seals[peer]
    if (seal === undefined) return this.#receive(peer, this.#base + at, length)
    const taken = seal.receive(at, length, (region, to, bytes) =>
      this.#receive(peer, region.address + to, bytes),
    )
    return taken === ALTERED ? this.#end(peer, ALTERED_REASON) : taken
  }

  wantSend(peer: number, wanted: boolean): void {
    const fd = this.#fds[peer]!
    if (fd >= 0) this.#polls.watch(peer, fd, wanted ? POLLIN | POLLOUT : POLLIN)
  }

  closeReason(peer: number): string {
    return this.#reasons[peer] ?? ''
  }

  closePeer(peer: number): void {
    this.#end(peer, 'this rank closed the connection')
  }

  close(): void {
    for (const peer of this.#fds.keys()) this.closePeer(peer)
    for (const seal of this.#seals) seal?.close()
    this.#polls.close()
  }

  sleep(milliseconds: number): void {
    this.#polls.sleep(milliseconds)
  }

  yield(): void {
    yieldCore()
  }

  #send(peer: number, address: number, length: number, more: boolean): number {
    const fd = this.#fds[peer]!
    if (fd < 0 || this.#reasons[peer] !== '') return CLOSED
    const sent = sendBytes(fd, address, length, more)
    if (sent >= 0) return sent
    if (isTransient(sent)) return 0
    // Sending has failed, but received data can still be read.
    this.#reasons[peer] = failure(sent)
    return CLOSED
  }

  #receive(peer: number, address: number, length: number): number {
    const fd = this.#fds[peer]!
    if (fd < 0) return CLOSED
    const taken = receiveBytes(fd, address, length)
    if (taken > 0) return taken
    if (taken === 0) return this.#end(peer, 'it closed the connection')
    return isTransient(taken) ? 0 : this.#end(peer, failure(taken))
  }

  #end(peer: number, reason: string): typeof CLOSED {
    const fd = this.#fds[peer]!
    if (fd >= 0) {
      closeNative(fd)
      this.#reasons[peer] ||= reason
      this.#fds[peer] = -1
      this.#polls.forget(peer)
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

export async function openTcpDialer(options: ListenOptions): Promise<Dialer<DescriptorChannel>> {
  const { fd: listener, endpoint } = await listenAtFreePort(
    options,
    (port) => listenTcp({ host: options.host, port }),
    (error) => isTsrError(error) && error.facts['errno'] === EADDRINUSE,
  )
  let listening = true
  return {
    endpoint,
    async accept() {
      while (listening) {
        const fd = tryAccept(listener)
        if (fd >= 0) return descriptorChannel(fd, peerAddress(fd))
        await readiness.wait(listener, POLLIN)
      }
      throw new Error('stopped listening')
    },
    async dial(to: Endpoint, signal?: AbortSignal) {
      const fd = connectTcp(to)
      const pollfd = Int32Array.of(fd, POLLOUT)
      const wake = (): void => {
        readiness.forget(fd)
      }
      signal?.addEventListener('abort', wake)
      try {
        while (pollFds(addressOf(pollfd), 1, 0) === 0) {
          signal?.throwIfAborted()
          await readiness.wait(fd, POLLOUT)
        }
        const errno = connectError(fd)
        if (errno !== 0) throw new Error(`connect failed with ${errnoName(errno)}`)
      } catch (error) {
        closeNative(fd)
        throw error
      } finally {
        signal?.removeEventListener('abort', wake)
      }
      return descriptorChannel(fd)
    },
    stopListening() {
      if (!listening) return
      listening = false
      readiness.forget(listener)
      closeNative(listener)
    },
  }
}

/**
 * Accepts a connection, or returns -1 if there is none. Also returns -1 if this process has no
 * descriptors left; the peer then waits in the kernel's queue.
 */
function tryAccept(listener: number): number {
  try {
    return acceptTcp(listener)
  } catch {
    return -1
  }
}

/** A connected non-blocking socket during the handshake. */
export interface DescriptorChannel extends ByteChannel {
  readonly fd: number
}

function descriptorChannel(fd: number, from = ''): DescriptorChannel {
  let isClosed = false
  const moveAll = async (
    bytes: Uint8Array,
    events: number,
    move: (at: number, length: number) => number,
  ): Promise<void> => {
    for (let done = 0; done < bytes.length;) {
      if (isClosed) throw new Error('the connection was closed')
      const moved = move(addressOf(bytes.subarray(done)), bytes.length - done)
      if (moved > 0) done += moved
      else if (moved === -EAGAIN) await readiness.wait(fd, events)
      else throw new Error(`the connection failed with ${errnoName(-moved)}`)
    }
  }
  return {
    fd,
    from,
    write: async (bytes) => {
      await moveAll(bytes, POLLOUT, (at, length) => sendBytes(fd, at, length, false))
    },
    read: async (length) => {
      const bytes = new Uint8Array(length)
      await moveAll(bytes, POLLIN, (at, left) => {
        const taken = receiveBytes(fd, at, left)
        if (taken === 0) throw new Error('the connection ended')
        return taken
      })
      return bytes
    },
    close: () => {
      if (isClosed) return
      isClosed = true
      readiness.forget(fd)
      closeNative(fd)
    },
  }
}
