import type {
  Channel,
  MatchedReceive,
  Message,
  Steps,
  Waited,
} from '../../packages/distributed/src/algorithms/channel.ts'
import { findAlgorithm } from '../../packages/distributed/src/algorithms/select.ts'
import { builtInTuning } from '../../packages/distributed/src/algorithms/tuning-table.ts'
import { createMemory, heapOf } from '../../packages/distributed/src/arena/heap.ts'
import { instantiateKernels } from '../../packages/distributed/src/kernels/kernels.ts'
import {
  sliced,
  type AlgorithmName,
  type Operation,
  type OperationName,
} from '../../packages/distributed/src/operation.ts'

export const RANKS = 4
const ROOT = 0
const MEMORY = 16 * 2 ** 20
const INPUT = 2 ** 16

/** A collective of int32 values on four ranks. */
export interface Call {
  readonly name: OperationName
  readonly algorithm: AlgorithmName
  /** Size of the whole buffer in bytes; default 256. */
  readonly bytes?: number
  /** The host of each rank; default: each rank is on a separate host. */
  readonly hosts?: readonly number[]
  /** Whether a rank sends at most one message in a step; default false. */
  readonly oneAtATime?: boolean
}

/**
 * Values of ranks for places of the result, as bits: bit `RANKS * place + rank` is the value that a
 * rank has for a place. A place is a quarter of the buffer; in a barrier it is the arrival of a rank.
 */
export type Values = number

export interface SentMessage {
  readonly from: number
  readonly to: number
  readonly bytes: number
  readonly values: Values
}

/** The messages that need not wait for each other, and what has then reached each rank. */
export interface Step {
  readonly messages: readonly SentMessage[]
  readonly held: readonly Values[]
}

/** One end of a message. */
interface End extends Message {
  readonly peer: number
  done: boolean
}

/** Whether the values of a rank for a place are among `values`. */
export function includes(values: Values, place: number, rank: number): boolean {
  return (values & valueOf(place, rank)) !== 0
}

/**
 * Runs the code of an algorithm on four ranks. In each step, all messages arrive for which both ranks
 * are ready.
 *
 * @returns what the ranks hold before the first step, and the steps
 */
export function messagesOf(call: Call): { before: Values[]; steps: Step[] } {
  const { name, oneAtATime = false } = call
  const ranks = Array.from({ length: RANKS }, (_, rank) => new TracedRank(rank, call))
  const before = ranks.map(({ held }) => held)
  const steps: Step[] = []
  for (;;) {
    for (const each of ranks) each.run()
    const moving = ranks.flatMap((sender) => matchSends(sender, ranks, oneAtATime))
    if (moving.length === 0) break
    const messages = moving.map(({ sender, receiver, sent }) => ({
      from: sender.rank,
      to: receiver.rank,
      bytes: sent.bytes,
      values: sent.bytes === 0 ? sender.held : sender.valuesAt(sent),
    }))
    const contents = moving.map(({ sender, sent }) =>
      sender.heap.bytes.slice(sent.at, sent.at + sent.bytes),
    )
    for (const [i, { receiver, sent, received }] of moving.entries()) {
      receiver.heap.bytes.set(contents[i]!, received.at)
      sent.done = received.done = true
    }
    // Only an all-to-all moves values; the others copy them.
    if (name === 'allToAll') for (const { from, values } of messages) ranks[from]!.held &= ~values
    for (const { to, values } of messages) ranks[to]!.held |= values
    steps.push({ messages, held: ranks.map(({ held }) => held) })
  }
  if (!ranks.every(({ hasEnded }) => hasEnded)) throw new Error(`${name} does not end`)
  return { before, steps }
}

/** Takes the messages of a rank that can arrive, in the order in which it sends them. */
function matchSends(sender: TracedRank, ranks: readonly TracedRank[], oneAtATime: boolean) {
  const matches: { sender: TracedRank; receiver: TracedRank; sent: End; received: End }[] = []
  for (const sent of [...sender.sending]) {
    const receiver = ranks[sent.peer]!
    const received = receiver.receiving.find(({ peer }) => peer === sender.rank)
    if (received === undefined || (oneAtATime && matches.length > 0)) continue
    sender.sending.splice(sender.sending.indexOf(sent), 1)
    receiver.receiving.splice(receiver.receiving.indexOf(received), 1)
    matches.push({ sender, receiver, sent, received })
  }
  return matches
}

class TracedRank implements Channel {
  readonly rank: number
  readonly size = RANKS
  readonly hosts: readonly number[]
  readonly heap = heapOf(createMemory(MEMORY))
  readonly kernels = instantiateKernels(this.heap.memory)
  readonly tuning = builtInTuning
  readonly sending: End[] = []
  readonly receiving: End[] = []
  held: Values
  hasEnded = false
  readonly #steps: Steps
  #waited: Waited = { done: true }
  #free: number

  constructor(rank: number, call: Call) {
    const { name, bytes = 256, hosts = [0, 1, 2, 3] } = call
    this.rank = rank
    this.hosts = hosts
    this.#free = INPUT + 2 * bytes
    const values = inputOf(name, rank)
    this.held = values.reduce((all, value) => all | value, 0)
    const part = bytes / RANKS / 4
    for (const [i, value] of values.entries()) {
      const first = INPUT / 4 + i * part
      this.heap.unsigned.fill(value, first, first + part)
    }
    const operation = operationOf(call, bytes)
    this.#steps = findAlgorithm(operation, RANKS)(this, operation)
  }

  /** Continues until the rank waits for a message. */
  run(): void {
    while (this.#waited.done && !this.hasEnded) {
      const { done, value } = this.#steps.next()
      if (done === true) this.hasEnded = true
      else this.#waited = value
    }
  }

  valuesAt({ at, bytes }: Message): Values {
    return this.heap.unsigned
      .subarray(at / 4, (at + bytes) / 4)
      .reduce((all, value) => all | value, 0)
  }

  send(to: number, at: number, bytes: number): Message {
    const sent = { peer: to, at, bytes, done: false }
    this.sending.push(sent)
    return sent
  }

  receive(from: number, at: number, bytes: number): Message {
    const received = { peer: from, at, bytes, done: false }
    this.receiving.push(received)
    return received
  }

  scratch(bytes: number): number {
    const at = this.#free
    this.#free += bytes
    return at
  }

  receiveMatched(): MatchedReceive {
    throw new Error('collectives do not receive from unknown ranks')
  }

  skip(): void {
    throw new Error('collectives do not skip messages')
  }
}

function valueOf(place: number, rank: number): Values {
  return 1 << (RANKS * place + rank)
}

/** The parts of a rank's input. */
function inputOf(name: OperationName, rank: number): Values[] {
  const hasOnePart = name === 'allGather' || name === 'gather' || name === 'barrier'
  if (hasOnePart) return [valueOf(rank, rank)]
  if ((name === 'broadcast' || name === 'scatter') && rank !== ROOT) return []
  return Array.from({ length: RANKS }, (_, place) => valueOf(place, rank))
}

const inPlace: ReadonlySet<OperationName> = new Set(['allReduce', 'broadcast', 'reduce'])

function operationOf({ name, algorithm }: Call, bytes: number): Operation {
  const elements = bytes / 4
  return {
    name,
    algorithm,
    dtype: 'int32',
    reduction: 'sum',
    input: INPUT,
    output: inPlace.has(name) ? INPUT : INPUT + bytes,
    count: name === 'barrier' ? 0 : sliced.has(name) ? elements / RANKS : elements,
    peer: ROOT,
    deterministic: false,
    table: 0,
    group: 0,
    sequence: 0,
    flight: 1,
    tag: 0,
    timeout: 0,
    aborted: false,
    isReserved: false,
    begun: 0,
  }
}
