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

/** The descriptors that an engine's thread sleeps on: one for each peer, the doorbell, and the bell. */
export class PollSet {
  /** An eventfd of this process. Signalling it from any thread ends `sleep`. */
  readonly doorbell = openEventfd()
  readonly #bell: number
  readonly #peers: number
  /**
   * A struct pollfd for each peer, for the doorbell and for the bell: [fd, events | revents << 16].
   */
  readonly #pollfds: Int32Array
  readonly #address: number

  /**
   * @param bell - the bell from `createBell`, which peers of this host ring; it is closed with the
   * set
   */
  constructor(peers: number, bell = -1) {
    this.#peers = peers
    this.#bell = bell
    this.#pollfds = new Int32Array(2 * (peers + 2)).fill(-1)
    this.#address = addressOf(this.#pollfds)
    this.watch(peers, this.doorbell, POLLIN)
    this.watch(peers + 1, bell, POLLIN)
  }

  /**
   * Sets the events of a peer's descriptor that end a `sleep`. A failed descriptor always ends it.
   */
  watch(peer: number, fd: number, events: number): void {
    this.#pollfds[2 * peer] = fd
    this.#pollfds[2 * peer + 1] = events
  }

  forget(peer: number): void {
    this.watch(peer, -1, 0)
  }

  /** Sleeps until an event occurs, for at most `milliseconds`. */
  sleep(milliseconds: number): void {
    const peers = this.#peers
    if (pollFds(this.#address, peers + 2, milliseconds) === 0) return
    if (this.seen(peers) !== 0) drainEventfd(this.doorbell)
    if (this.seen(peers + 1) !== 0) silenceBell(this.#bell)
  }

  /** Returns the events of a peer's descriptor that ended the last `sleep`. */
  seen(peer: number): number {
    return this.#pollfds[2 * peer + 1]! >>> 16
  }

  /** Polls a peer's descriptor and returns its current events. */
  look(peer: number): number {
    pollFds(this.#address + peer * POLLFD_BYTES, 1, 0)
    return this.seen(peer)
  }

  close(): void {
    closeNative(this.doorbell)
    if (this.#bell >= 0) closeNative(this.#bell)
  }
}
