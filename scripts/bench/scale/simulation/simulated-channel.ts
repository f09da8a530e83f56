import type {
  Channel,
  MatchedReceive,
  Message,
} from '../../../../packages/distributed/src/algorithms/channel.ts'
import { builtInTuning } from '../../../../packages/distributed/src/algorithms/tuning-table.ts'
import { createMemory, heapOf } from '../../../../packages/distributed/src/arena/heap.ts'
import { EAGER_LIMIT } from '../../../../packages/distributed/src/engine/messages/frame.ts'
import type { MessageCosts } from './cluster.ts'
import type { SimulatedRank } from './simulated-rank.ts'

/** A message on its way between two ranks. */
interface Exchange {
  readonly bytes: number
  readonly costs: MessageCosts
  sent?: HalfMessage
  received?: HalfMessage
  /** The sender may send, or the receiver may copy. */
  isCleared?: boolean
  /** The payload, or in shared memory the place of a large one, has come. */
  hasArrived?: boolean
}

/** One end of an exchange. */
class HalfMessage implements Message {
  readonly at: number
  readonly bytes: number
  done = false

  constructor(at: number, bytes: number) {
    this.at = at
    this.bytes = bytes
  }
}

/** What a channel uses of the simulation around it. */
export interface Surroundings {
  readonly size: number
  /** By rank, as in `Channel`. */
  readonly hosts: readonly number[]
  /** What messages between two ranks cost, and whether they go through shared memory. */
  mediumOf(a: number, b: number): { readonly costs: MessageCosts; readonly isShared: boolean }
  /** The channel at the other end of what `rank` sends to `to`, and what `rank` is there. */
  farEnd(rank: number, to: number): { readonly channel: SimulatedChannel; readonly source: number }
  /**
   * Lets bytes that a rank sends from a time on pass to the other rank; `sentAt` is when it has handed
   * over the last one. `onArrived` gets the times of the first and the last byte.
   */
  transmit(message: Transmission): void
  countMessage(): void
}

export interface Transmission {
  readonly from: number
  readonly to: number
  readonly bytes: number
  readonly time: number
  readonly sentAt: number
  readonly latency: number
  readonly onArrived: (first: number, last: number) => void
}

/** No algorithm reads or writes data here; the tables of uneven slices would be in the heap. */
const emptyHeap = heapOf(createMemory(1))
const SCRATCH = 2 ** 50

/** The channel of an algorithm in a simulation, by the protocols of the engine. */
export class SimulatedChannel implements Channel {
  readonly rank: number
  readonly size: number
  readonly hosts: readonly number[]
  readonly heap = emptyHeap
  readonly tuning = builtInTuning
  readonly kernels
  readonly #own: SimulatedRank
  readonly #surroundings: Surroundings
  /** By the rank at the other end, and by position. What is complete is removed. */
  readonly #incoming = new Map<number, Map<number, Exchange>>()
  readonly #sent = new Map<number, number>()
  readonly #received = new Map<number, number>()
  #scratch = SCRATCH

  constructor(rank: number, own: SimulatedRank, surroundings: Surroundings) {
    this.rank = rank
    this.size = surroundings.size
    this.hosts = surroundings.hosts
    this.kernels = own.kernels
    this.#own = own
    this.#surroundings = surroundings
  }

  scratch(bytes: number): number {
    const at = this.#scratch
    this.#scratch += bytes
    return at
  }

  skip(): void {
    throw new RangeError('the simulation has collectives only')
  }

  receiveMatched(): MatchedReceive {
    throw new RangeError('the simulation has collectives only')
  }

  send(to: number, at: number, bytes: number): Message {
    this.#surroundings.countMessage()
    const { channel: receiver, source } = this.#surroundings.farEnd(this.rank, to)
    const exchange = receiver.#exchangeWith(source, nextOf(this.#sent, to), bytes)
    const sent = (exchange.sent = new HalfMessage(at, bytes))
    const { costs } = exchange
    if (bytes <= EAGER_LIMIT) {
      this.#transmit(to, exchange, receiver)
      sent.done = true
    } else if (this.#surroundings.mediumOf(this.rank, to).isShared) {
      this.#own.spend(costs.overhead)
      receiver.#own.expect(this.#own.clock + costs.latency, () => {
        exchange.hasArrived = true
        if (exchange.received !== undefined) receiver.#get(exchange, this)
      })
    } else if (exchange.isCleared === true) {
      this.#transmit(to, exchange, receiver)
    } else {
      // the request to send
      this.#own.spend(costs.overhead)
    }
    return sent
  }

  receive(from: number, at: number, bytes: number): Message {
    const exchange = this.#exchangeWith(from, nextOf(this.#received, from), bytes)
    const received = (exchange.received = new HalfMessage(at, bytes))
    const { costs } = exchange
    if (bytes <= EAGER_LIMIT) {
      if (exchange.hasArrived === true) {
        this.kernels.copy(at, -1, bytes)
        received.done = true
      }
      return received
    }
    const { channel: sender, source } = this.#surroundings.farEnd(this.rank, from)
    if (this.#surroundings.mediumOf(this.rank, from).isShared) {
      if (exchange.hasArrived === true) this.#get(exchange, sender)
      return received
    }
    this.#own.spend(costs.overhead)
    sender.#own.expect(this.#own.clock + costs.latency, () => {
      sender.#own.spend(costs.overhead)
      exchange.isCleared = true
      if (exchange.sent !== undefined) sender.#transmit(source, exchange, this)
    })
    return received
  }

  /** Sends the payload, and has it received at the other end. */
  #transmit(to: number, exchange: Exchange, receiver: SimulatedChannel): void {
    const { bytes, costs } = exchange
    const { overhead, perByte, latency } = costs
    this.#own.spend(overhead)
    const time = this.#own.clock
    this.#own.spend(bytes * perByte)
    const onArrived = (first: number, last: number): void => {
      const copying = bytes * perByte
      receiver.#own.expect(Math.max(first, last - copying), () => {
        receiver.#own.spend(overhead + copying)
        exchange.hasArrived = true
        if (exchange.received !== undefined) exchange.received.done = true
      })
      if (bytes <= EAGER_LIMIT) return
      // the socket takes the last byte when the link has room for it
      this.#own.expect(Math.max(time, last - latency), () => {
        exchange.sent!.done = true
      })
    }
    const sentAt = this.#own.clock
    const from = this.rank
    this.#surroundings.transmit({ from, to, bytes, time, sentAt, latency, onArrived })
  }

  /** Copies a large message out of the memory of another rank, and tells it so. */
  #get(exchange: Exchange, sender: SimulatedChannel): void {
    const { bytes, costs } = exchange
    this.#own.spend(costs.overhead + bytes * costs.perByte)
    exchange.received!.done = true
    sender.#own.expect(this.#own.clock + costs.latency, () => {
      sender.#own.spend(costs.overhead)
      exchange.sent!.done = true
    })
  }

  #exchangeWith(source: number, position: number, bytes: number): Exchange {
    const open = this.#incoming.get(source) ?? new Map<number, Exchange>()
    this.#incoming.set(source, open)
    const known = open.get(position)
    if (known !== undefined) {
      // Both ends have arrived, so it is never looked up again.
      open.delete(position)
      if (known.bytes === bytes) return known
      throw new RangeError(`rank ${this.rank} receives ${bytes} bytes of ${known.bytes}`)
    }
    const { costs } = this.#surroundings.mediumOf(source, this.rank)
    const exchange = { bytes, costs }
    open.set(position, exchange)
    return exchange
  }
}

function nextOf(positions: Map<number, number>, peer: number): number {
  const position = positions.get(peer) ?? 0
  positions.set(peer, position + 1)
  return position
}
