/*
 * The cost model of the simulation, after LogGP (Alexandrov, Ionescu, Schauser & Scheiman, 1995). All
 * times are in seconds.
 *
 * A message costs both ends `overhead` and `perByte` of a core. Between them it is `latency` under
 * way, and where it goes to another host, its bytes pass the links of the two hosts one after the
 * other with those of all other messages of these hosts. A payload is received while it is sent:
 * what comes first to an end waits for what is slower. What lies between the links of the hosts is
 * never busy.
 *
 * Messages above the eager limit wait for their receiver, as they do in the engine: over sockets for
 * its clear-to-send, and in shared memory for the receiver to copy them.
 */

/** What messages over one medium cost. */
export interface MessageCosts {
  /** Of a core, at each end. */
  readonly overhead: number
  /** From the moment when one end has sent the first byte until the other can take it. */
  readonly latency: number
  /** Of a core, at each end; for large messages in shared memory at the receiver only. */
  readonly perByte: number
}

/** What the cores of a host cost. */
export interface CoreCosts {
  /** A call of a collective, until its algorithm begins. */
  readonly calling: number
  /** The reduction of two buffers, by byte of one of them. */
  readonly combinePerByte: number
  readonly copyPerByte: number
  /**
   * A rank continues after it has waited, on a host with more ranks than cores. Elsewhere ranks keep
   * their cores while they wait.
   */
  readonly waking: number
}

/** Steps in shared memory without messages: an epoch of slots, a step of a window. */
export interface SlotCosts {
  readonly overhead: number
  readonly latency: number
}

/** The link of each host, in each direction. */
export interface HostLink {
  readonly latency: number
  readonly bytesPerSecond: number
}

/** What was measured on a machine. */
export interface MachineCosts extends CoreCosts {
  readonly sockets: MessageCosts
  readonly sharedMemory: MessageCosts
  readonly slots: SlotCosts
}

/** Equal hosts with equally many ranks, which are numbered host by host. */
export interface Cluster {
  readonly ranks: number
  readonly ranksPerHost: number
  /** Of each host. Ranks of a host that has fewer cores take turns. */
  readonly cores: number
  /** How the ranks of a host reach each other. Those of other hosts are reached through sockets. */
  readonly within: 'sharedMemory' | 'sockets'
  readonly link: HostLink
  readonly costs: MachineCosts
}
