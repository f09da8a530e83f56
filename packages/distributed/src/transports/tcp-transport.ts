import { isTsrError, monotonicNow, type SessionKeys } from '@tsrun/core'
import {
  acceptTcp,
  addressOf,
  closeNative,
  connectError,
  connectTcp,
  createBell,
  EADDRINUSE,
  EAGAIN,
  EINTR,
  errnoName,
  listenTcp,
  peerAddress,
  pollFds,
  POLLFD_BYTES,
  POLLIN,
  POLLOUT,
  receiveBytes,
  sendBytes,
  silenceBell,
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
import { ALTERED, sealStream } from './sealed-stream.ts'
import { ALTERED_REASON, CLOSED, type BlockingTransport, type LocalPlace } from './transport.ts'

/**
 * Milliseconds after which unacknowledged data ends a connection, for example if a cable was
 * pulled. The time must be long, because a live peer may not read for a while: its process may be
 * stopped, or its inline engine may wait while the rank computes.
 */
const USER_TIMEOUT = 300_000

export type PollSet = ReturnType<typeof openPollSet>

/**
 * Opens the set of descriptors that an engine's thread sleeps on: one for each peer, and the
 * doorbell.
 *
 * @param doorbell - ends `sleep` when another thread or a peer of this host rings it; it is closed
 *   with the set
 */
export function openPollSet(peers: number, doorbell = createBell()) {
  /** A struct pollfd for each peer, and for the doorbell: [fd, events | revents << 16]. */
  const pollfds = new Int32Array(2 * (peers + 1)).fill(-1)
  // The memory at this address stays allocated, because `watch` and `seen` refer to it.
  const address = addressOf(pollfds)

  /** Sets which events of a peer's descriptor end a `sleep`. A failure always ends it. */
  const watch = (peer: number, fd: number, events: number): void => {
    pollfds[2 * peer] = fd
    pollfds[2 * peer + 1] = events
  }
  watch(peers, doorbell, POLLIN)

  /** Returns the events of a peer's descriptor that ended the last `sleep`. */
  const seen = (peer: number): number => pollfds[2 * peer + 1]! >>> 16

  return {
    doorbell,
    watch,
    seen,
    forget(peer: number): void {
      watch(peer, -1, 0)
    },
    /** Sleeps until an event occurs, for at most `milliseconds`. */
    sleep: (milliseconds: number): void => {
      if (pollFds(address, peers + 1, milliseconds) === 0) return
      if (seen(peers) !== 0) silenceBell(doorbell)
    },
    /** Polls a peer's descriptor and returns its current events. */
    look(peer: number): number {
      pollFds(address + peer * POLLFD_BYTES, 1, 0)
      return seen(peer)
    },
    close(): void {
      closeNative(doorbell)
    },
  }
}

/**
 * Uses libc sockets: payloads move directly between the kernel and the arena.
 *
 * @param descriptors - the descriptor of the connection to each rank; undefined for this rank
 * @param keys - keys of the connection to each rank; undefined if the connection is not encrypted
 */
export function tcpTransport(
  heap: Heap,
  descriptors: readonly (number | undefined)[],
  polls = openPollSet(descriptors.length),
  place?: LocalPlace,
  keys: readonly (SessionKeys | undefined)[] = [],
): BlockingTransport {
  const base = addressOf(heap.bytes)
  const region = { bytes: heap.bytes, address: base }
  /** The encryption of each peer's stream; undefined if the stream is not encrypted. */
  const seals = keys.map((each) => each && sealStream(region, each))
  /** Descriptor of each peer; -1 for this rank and for closed peers. */
  const fds = descriptors.map((fd) => fd ?? -1)
  const reasons = fds.map(() => '')
  for (const [peer, fd] of fds.entries()) {
    if (fd < 0) continue
    tuneTcp(fd, USER_TIMEOUT)
    polls.watch(peer, fd, POLLIN)
  }

  const send = (peer: number, address: number, length: number, more: boolean): number => {
    const fd = fds[peer]!
    if (fd < 0 || reasons[peer] !== '') return CLOSED
    const sent = sendBytes(fd, address, length, more)
    if (sent >= 0) return sent
    if (isTransient(sent)) return 0
    // Sending has failed, but received data can still be read.
    reasons[peer] = failure(sent)
    return CLOSED
  }

  const receive = (peer: number, address: number, length: number): number => {
    const fd = fds[peer]!
    if (fd < 0) return CLOSED
    const taken = receiveBytes(fd, address, length)
    if (taken > 0) return taken
    if (taken === 0) return end(peer, 'it closed the connection')
    return isTransient(taken) ? 0 : end(peer, failure(taken))
  }

  const end = (peer: number, reason: string): typeof CLOSED => {
    const fd = fds[peer]!
    if (fd >= 0) {
      closeNative(fd)
      reasons[peer] ||= reason
      fds[peer] = -1
      polls.forget(peer)
    }
    return CLOSED
  }

  const transport: BlockingTransport = {
    name: 'tcp',
    place,
    doorbell: polls.doorbell,
    trySend(peer, at, length, more) {
      const seal = seals[peer]
      if (seal === undefined) return send(peer, base + at, length, more)
      return seal.send(at, length, more, (from, offset, bytes, follows) =>
        send(peer, from.address + offset, bytes, follows),
      )
    },
    tryReceive(peer, at, length) {
      const seal = seals[peer]
      if (seal === undefined) return receive(peer, base + at, length)
      const taken = seal.receive(at, length, (to, offset, bytes) =>
        receive(peer, to.address + offset, bytes),
      )
      return taken === ALTERED ? end(peer, ALTERED_REASON) : taken
    },
    wantSend(peer, wanted) {
      const fd = fds[peer]!
      if (fd >= 0) polls.watch(peer, fd, wanted ? POLLIN | POLLOUT : POLLIN)
    },
    closeReason: (peer) => reasons[peer] ?? '',
    closePeer(peer) {
      end(peer, 'this rank closed the connection')
    },
    close() {
      for (const peer of fds.keys()) transport.closePeer(peer)
      for (const seal of seals) seal?.close()
      polls.close()
    },
    sleep: polls.sleep,
    yield: yieldCore,
  }
  return transport
}

function isTransient(result: number): boolean {
  return result === -EAGAIN || result === -EINTR
}

function failure(result: number): string {
  return `the connection failed with ${errnoName(-result)}`
}

/** Longest pause between two attempts, in milliseconds. */
const LONGEST_PAUSE = 20

/**
 * Calls `attempt` until it returns a result, because Node cannot wait for a descriptor. The pauses
 * grow with the time that has passed, so that many connections to slow peers take little CPU time.
 */
async function tryUntilReady<T>(attempt: () => T | undefined): Promise<T> {
  const start = monotonicNow()
  for (;;) {
    const result = attempt()
    if (result !== undefined) return result
    const pause = Math.min(LONGEST_PAUSE, Math.max(1, (monotonicNow() - start) / 32))
    await new Promise((resolve) => setTimeout(resolve, pause))
  }
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
    accept: async () =>
      await tryUntilReady(() => {
        if (!listening) throw new Error('stopped listening')
        const fd = acceptTcp(listener)
        return fd < 0 ? undefined : descriptorChannel(fd, peerAddress(fd))
      }),
    async dial(to: Endpoint, signal?: AbortSignal) {
      const fd = connectTcp(to)
      const pollfd = Int32Array.of(fd, POLLOUT)
      try {
        await tryUntilReady(() => {
          signal?.throwIfAborted()
          return pollFds(addressOf(pollfd), 1, 0) === 0 ? undefined : true
        })
        const errno = connectError(fd)
        if (errno !== 0) throw new Error(`connect failed with ${errnoName(errno)}`)
      } catch (error) {
        closeNative(fd)
        throw error
      }
      return descriptorChannel(fd)
    },
    stopListening() {
      if (!listening) return
      listening = false
      closeNative(listener)
    },
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
    move: (at: number, length: number) => number,
  ): Promise<void> => {
    for (let done = 0; done < bytes.length;) {
      done += await tryUntilReady(() => {
        if (isClosed) throw new Error('the connection was closed')
        const moved = move(addressOf(bytes.subarray(done)), bytes.length - done)
        if (moved === -EAGAIN) return undefined
        if (moved <= 0) throw new Error(`the connection failed with ${errnoName(-moved)}`)
        return moved
      })
    }
  }
  return {
    fd,
    from,
    write: async (bytes) => {
      await moveAll(bytes, (at, length) => sendBytes(fd, at, length, false))
    },
    read: async (length) => {
      const bytes = new Uint8Array(length)
      await moveAll(bytes, (at, left) => {
        const taken = receiveBytes(fd, at, left)
        if (taken === 0) throw new Error('the connection ended')
        return taken
      })
      return bytes
    },
    close: () => {
      if (isClosed) return
      isClosed = true
      closeNative(fd)
    },
  }
}
