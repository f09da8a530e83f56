import {
  addressOf,
  closeNative,
  drainEventfd,
  openEventfd,
  pollFds,
  POLLFD_BYTES,
  POLLIN,
  silenceBell,
} from '@tsrun/native'

export type PollSet = ReturnType<typeof openPollSet>

/**
 * Opens the set of descriptors that an engine's thread sleeps on: one for each peer, the doorbell, and
 * the bell.
 *
 * @param bell - the bell from `createBell`, which peers of this host ring; it is closed with the set
 */
export function openPollSet(peers: number, bell = -1) {
  /** An eventfd of this process. Signalling it from any thread ends `sleep`. */
  const doorbell = openEventfd()
  /**
   * A struct pollfd for each peer, for the doorbell and for the bell: [fd, events | revents << 16].
   */
  const pollfds = new Int32Array(2 * (peers + 2)).fill(-1)
  // `watch` and `seen` keep the memory at this address.
  const address = addressOf(pollfds)

  /**
   * Sets the events of a peer's descriptor that end a `sleep`. A failed descriptor always ends it.
   */
  const watch = (peer: number, fd: number, events: number): void => {
    pollfds[2 * peer] = fd
    pollfds[2 * peer + 1] = events
  }
  watch(peers, doorbell, POLLIN)
  watch(peers + 1, bell, POLLIN)

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
      if (pollFds(address, peers + 2, milliseconds) === 0) return
      if (seen(peers) !== 0) drainEventfd(doorbell)
      if (seen(peers + 1) !== 0) silenceBell(bell)
    },
    /** Polls a peer's descriptor and returns its current events. */
    look(peer: number): number {
      pollFds(address + peer * POLLFD_BYTES, 1, 0)
      return seen(peer)
    },
    close(): void {
      closeNative(doorbell)
      if (bell >= 0) closeNative(bell)
    },
  }
}
