import type { Layout } from '../../../../packages/distributed/src/algorithms/channel.ts'
import { GRAIN } from '../../../../packages/distributed/src/algorithms/pieces.ts'
import {
  algorithmsOf,
  chooseBetweenHosts,
  chooseWithoutMessages,
  findAlgorithm,
  resolveAlgorithm,
} from '../../../../packages/distributed/src/algorithms/select.ts'
import {
  builtInTuning,
  type TuningTable,
} from '../../../../packages/distributed/src/algorithms/tuning-table.ts'
import {
  sliced,
  type AlgorithmName,
  type Operation,
  type OperationName,
} from '../../../../packages/distributed/src/operation.ts'
import {
  MOST_READERS,
  SLOT,
} from '../../../../packages/distributed/src/transports/shared-memory/slots.ts'
import type { Cluster } from './cluster.ts'
import { EventQueue } from './event-queue.ts'
import { SimulatedChannel, type Surroundings, type Transmission } from './simulated-channel.ts'
import { SimulatedHost, SimulatedRank } from './simulated-rank.ts'
import { SharedMemoryRanks } from './simulated-window.ts'

/** A collective on float32 values, with the first rank as its root. */
export interface Call {
  readonly name: OperationName
  /** Of the whole buffer: a multiple of 4, and of 4 times the ranks where each has a slice. */
  readonly bytes: number
}

export interface Simulated {
  /** Until the last rank has ended. */
  readonly seconds: number
  /** Simulated ones. */
  readonly messages: number
  readonly method: Method
}

/** What of a cluster was simulated; see `simulate`. */
export type Method = 'all ranks' | 'one host'

/** In larger groups not all ranks are simulated, where the algorithm allows it. */
const MOST_RANKS = 32
/** A simulation is given up after so many messages. */
const MOST_MESSAGES = 200_000
const OTHER_BUFFER = 2 ** 40

/**
 * How an algorithm does the same on every host. Where rank r sends to rank s, so does the rank that is
 * `k` hosts after r to that which is `k` hosts after s: `rotation` counts hosts modulo their number,
 * `reflection` by exclusive or.
 */
type Symmetry = 'rotation' | 'reflection'

const symmetries: Partial<Record<OperationName, Partial<Record<AlgorithmName, Symmetry>>>> = {
  allReduce: {
    ring: 'rotation',
    direct: 'rotation',
    'recursive-doubling': 'reflection',
    'halving-doubling': 'reflection',
  },
  reduceScatter: {
    ring: 'rotation',
    direct: 'rotation',
  },
  allGather: { ring: 'rotation', direct: 'rotation' },
  allToAll: { pairwise: 'rotation' },
}

/** The algorithms that can run a call on a cluster. */
export function algorithmsOn(cluster: Cluster, { name, bytes }: Call): AlgorithmName[] {
  const isTogether = layoutOf(cluster) === 'together' && cluster.ranks <= MOST_READERS
  const found = algorithmsOf(name).filter((algorithm) => {
    if (algorithm === 'hierarchical') return layoutOf(cluster) === 'mixed'
    return algorithm !== 'window' || isTogether
  })
  const isFlat = algorithmFor(cluster, { name, bytes }) === 'flat'
  return isFlat ? [...found, 'flat'] : found
}

/** What a tuning table chooses for a call on a cluster. */
export function algorithmFor(
  cluster: Cluster,
  { name, bytes }: Call,
  tuning: TuningTable = builtInTuning,
): AlgorithmName {
  const { ranks } = cluster
  const operation = operationOf(cluster, { name, bytes }, 'auto')
  const layout = layoutOf(cluster)
  const without =
    layout === 'together' && ranks <= MOST_READERS
      ? chooseWithoutMessages(operation, ranks, SLOT)
      : undefined
  return without ?? resolveAlgorithm(operation, ranks, layout, tuning).algorithm
}

/**
 * Runs an algorithm on a simulated cluster, by its own code, on buffers without data.
 *
 * Where an algorithm does the same on every host, all hosts are in the same state at any time. In
 * large groups only one of them is simulated then, and what it sends to another comes back to it as
 * what a third one sends to it. The chunks must be equal for that, so the buffer is extended to whole
 * ones.
 *
 * @param isWhole - whether all ranks are simulated; by default in small groups
 * @returns undefined where it would take too many messages
 */
export function simulate(
  cluster: Cluster,
  call: Call,
  algorithm: AlgorithmName,
  isWhole: boolean = cluster.ranks <= MOST_RANKS,
): Simulated | undefined {
  const hosts = cluster.ranks / cluster.ranksPerHost
  if (isWhole || hosts === 1) return simulateHosts(cluster, call, algorithm, hosts)
  const symmetry = symmetryOf(cluster, call, algorithm)
  const equal = withEqualChunks(cluster, call, algorithm)
  if (symmetry === undefined || equal === undefined) {
    return simulateHosts(cluster, call, algorithm, hosts)
  }
  return simulateHosts(cluster, equal, algorithm, 1, symmetry)
}

/** @param hosts - to simulate */
function simulateHosts(
  cluster: Cluster,
  call: Call,
  algorithm: AlgorithmName,
  hosts: number,
  symmetry?: Symmetry,
): Simulated | undefined {
  const operation = operationOf(cluster, call, algorithm)
  const world = new SimulatedWorld(cluster, hosts, symmetry)
  if (algorithm === 'flat' || algorithm === 'window') {
    new SharedMemoryRanks(world.ranks, cluster.costs).run(operation)
  } else {
    world.start(operation)
  }
  world.events.run()
  const { messages } = world
  if (messages > MOST_MESSAGES) return undefined
  const ends = world.ranks.map(({ endedAt }) => endedAt)
  if (ends.includes(undefined)) throw new Error(`${call.name} by ${algorithm} does not end`)
  const method = symmetry === undefined ? 'all ranks' : 'one host'
  return { seconds: Math.max(...(ends as number[])), messages, method }
}

/** The ranks of some hosts of a cluster, the first ones, and what is between them. */
class SimulatedWorld implements Surroundings {
  readonly events = new EventQueue()
  readonly ranks: readonly SimulatedRank[]
  readonly size: number
  readonly hosts: readonly number[]
  messages = 0
  readonly #cluster: Cluster
  /** How the hosts that are not simulated differ from the one that is. */
  readonly #symmetry: Symmetry | undefined
  readonly #machines: readonly SimulatedHost[]
  readonly #channels: readonly SimulatedChannel[]

  constructor(cluster: Cluster, hosts: number, symmetry: Symmetry | undefined) {
    const { ranks, ranksPerHost, cores, costs, within } = cluster
    const waking = ranksPerHost > cores ? costs.waking : 0
    const machines = Array.from({ length: hosts }, () => new SimulatedHost(cores, waking))
    this.#cluster = cluster
    this.#symmetry = symmetry
    this.#machines = machines
    this.size = ranks
    this.hosts = Array.from({ length: ranks }, (_, rank) =>
      within === 'sockets' ? rank : this.#hostOf(rank),
    )
    this.ranks = Array.from(
      { length: hosts * ranksPerHost },
      (_, rank) => new SimulatedRank(this.events, machines[this.#hostOf(rank)]!, costs),
    )
    this.#channels = this.ranks.map((own, rank) => new SimulatedChannel(rank, own, this))
  }

  start(operation: Operation): void {
    const algorithm = findAlgorithm(operation, this.size)
    for (const [rank, own] of this.ranks.entries()) {
      const steps = algorithm(this.#channels[rank]!, operation)
      let waited = { done: true }
      own.start(() => {
        while (waited.done) {
          if (this.messages > MOST_MESSAGES) return false
          const { done, value } = steps.next()
          if (done === true) return true
          waited = value
        }
        return false
      })
    }
  }

  mediumOf(a: number, b: number): ReturnType<Surroundings['mediumOf']> {
    const { costs, within, link } = this.#cluster
    if (this.#hostOf(a) !== this.#hostOf(b)) {
      return { costs: { ...costs.sockets, latency: link.latency }, isShared: false }
    }
    return { costs: costs[within], isShared: within === 'sharedMemory' }
  }

  farEnd(rank: number, to: number): ReturnType<Surroundings['farEnd']> {
    const found = this.#channels[to]
    if (found !== undefined) return { channel: found, source: rank }
    const channel = this.#channels[to % this.#channels.length]!
    const distance = to - channel.rank
    const opposite = this.#symmetry === 'reflection' ? distance : this.size - distance
    return { channel, source: (rank + opposite) % this.size }
  }

  transmit({ from, to, bytes, time, sentAt, latency, onArrived }: Transmission): void {
    if (this.#hostOf(from) === this.#hostOf(to)) {
      onArrived(time + latency, sentAt + latency)
      return
    }
    const seconds = bytes / this.#cluster.link.bytesPerSecond
    const sender = this.#machineOf(from)
    const receiver = this.#machineOf(to)
    this.events.at(time, () => {
      const left = Math.max(time, sender.sending)
      sender.sending = left + seconds
      this.events.at(left + latency, () => {
        const came = Math.max(left + latency, receiver.receiving)
        receiver.receiving = came + seconds
        onArrived(came, Math.max(came + seconds, sentAt + latency))
      })
    })
  }

  countMessage(): void {
    this.messages++
  }

  #hostOf(rank: number): number {
    return Math.floor(rank / this.#cluster.ranksPerHost)
  }

  #machineOf(rank: number): SimulatedHost {
    return this.#machines[this.#hostOf(rank) % this.#machines.length]!
  }
}

function symmetryOf(cluster: Cluster, call: Call, algorithm: AlgorithmName): Symmetry | undefined {
  const { ranks, ranksPerHost } = cluster
  const between = betweenHosts(call, algorithm)
  const found = symmetries[call.name]?.[between]
  const corners = between === algorithm ? ranks : ranks / ranksPerHost
  const isHypercube = Number.isInteger(Math.log2(corners))
  return found === 'reflection' && !isHypercube ? undefined : found
}

/** What runs between hosts: the algorithm itself, or what a hierarchical all-reduce chooses. */
function betweenHosts({ name, bytes }: Call, algorithm: AlgorithmName): AlgorithmName {
  return algorithm === 'hierarchical' ? chooseBetweenHosts(name, bytes) : algorithm
}

/** The same call with chunks that are all equal, or undefined where it would take much longer. */
function withEqualChunks(
  cluster: Cluster,
  { name, bytes }: Call,
  algorithm: AlgorithmName,
): Call | undefined {
  if (name !== 'allReduce') return { name, bytes }
  const { ranks, ranksPerHost } = cluster
  const between = betweenHosts({ name, bytes }, algorithm)
  if (between === 'halving-doubling' && bytes < GRAIN * ranks) return undefined
  const chunks = between !== 'recursive-doubling' ? ranks : between === algorithm ? 1 : ranksPerHost
  return { name, bytes: Math.ceil(bytes / GRAIN / chunks) * GRAIN * chunks }
}

function layoutOf({ ranks, ranksPerHost, within }: Cluster): Layout {
  if (within === 'sockets' || ranksPerHost === 1) return 'apart'
  return ranks === ranksPerHost ? 'together' : 'mixed'
}

const inPlace: ReadonlySet<OperationName> = new Set(['allReduce', 'reduce', 'broadcast'])

function operationOf(
  { ranks }: Cluster,
  { name, bytes }: Call,
  algorithm: AlgorithmName,
): Operation {
  return {
    ...{ name, algorithm, group: 0, sequence: 0, flight: 1 },
    ...{ dtype: 'float32', reduction: 'sum', deterministic: false },
    ...{ input: 0, output: inPlace.has(name) ? 0 : OTHER_BUFFER },
    count: bytes / 4 / (sliced.has(name) ? ranks : 1),
    ...{ peer: 0, table: 0, tag: 0, timeout: 0, aborted: false, isReserved: false },
    begun: 0,
  }
}
