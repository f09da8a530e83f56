import {
  argumentError,
  callback,
  count,
  declareOptions,
  host,
  positive,
  where,
  type Rules,
} from '@tsrun/core'
import type { Store } from '@tsrun/store'
import { createMemory, heapOf } from './arena/heap.ts'
import type { MessageListener } from './engine/message-tap.ts'
import { createWorldGroup } from './groups/group.ts'
import type { ProcessGroup } from './process-group.ts'
import { createEventRunner, leaveOnEvents } from './runners/event-runner.ts'
import { portTransport, type Port } from './transports/port-transport.ts'

/** Milliseconds between two checks of the deadlines. */
const TICK = 50

/** Options of `joinPorts`. */
export interface JoinPortsOptions {
  readonly rank: number
  /** The port to each rank of the world; undefined for this rank. */
  readonly ports: readonly (Port | undefined)[]
  /** Default time-out of operations in milliseconds; default 10 minutes. */
  readonly timeout?: number
  /** Bytes of the arena and the engine of this rank; default 64 MiB. */
  readonly memory?: number
  /**
   * Called for each message when this rank sends it, and when this rank has received it. It must not
   * throw.
   */
  readonly onMessage?: MessageListener
}

const readOptions = declareOptions({
  rank: count(),
  ports: where<readonly (Port | undefined)[]>(Array.isArray, 'a list of ports, by rank'),
  timeout: positive('milliseconds above 0').default(600_000),
  memory: count({ from: 1 }).default(64 * 1024 * 1024),
  onMessage: callback<MessageListener>('a function of a message').optional(),
} satisfies Rules<JoinPortsOptions>)

/**
 * Joins a world whose ranks are workers, each with a port to every other worker. Workers share no memory.
 * Only asynchronous calls work, and the group cannot be divided. A worker that is terminated does not close
 * its ports: the operations of the other ranks time out.
 *
 * @example
 * onmessage = async ({ data: { rank, ports } }) => {
 *   const group = joinPorts({ rank, ports })
 *   await group.allReduce(Float32Array.of(rank))
 *   await group.destroy()
 * }
 *
 * @throws ERR_TSR_ARGUMENT
 */
export function joinPorts(options: JoinPortsOptions): ProcessGroup {
  const { rank, ports, timeout, memory, onMessage } = readOptions(options)
  const missing = Array.from(ports, (port, peer) => (port === undefined) !== (peer === rank))
  if (rank >= ports.length || missing.includes(true)) {
    throw argumentError(
      'ports',
      `${ports.filter((port) => port !== undefined).length} ports`,
      `a port for each rank but rank ${rank}`,
    )
  }
  const heap = heapOf(createMemory(memory))
  const transport = portTransport(heap, ports)
  const worldSize = ports.length
  let isAwake = false
  const wake = (): void => {
    if (isAwake) return
    isAwake = true
    queueMicrotask(() => {
      isAwake = false
      while (engine.progress());
    })
  }
  let hasLeft = false
  const tick = (): void => {
    if (hasLeft) return
    engine.checkDeadlines()
    wake()
    host.background(tick, TICK)
  }
  const leave = async (): Promise<void> => {
    await leaveOnEvents(engine, transport)
    hasLeft = true
    transport.close()
  }
  const facts = { heap, rank, worldSize, transport, onMessage, wake, leave }
  const { engine, runner } = createEventRunner(facts)
  transport.onReady = wake
  tick()
  return createWorldGroup({ rank, worldSize, runner, store: noStore, timeout })
}

type ChannelPort = InstanceType<typeof MessageChannel>['port1']

/**
 * Makes the ports between the workers of a world: row r is for rank r. Transfer them with a message to
 * its worker.
 *
 * @example
 * connectPorts(workers.length).forEach((ports, rank) => {
 *   workers[rank].postMessage({ rank, ports }, ports.filter((port) => port !== undefined))
 * })
 */
export function connectPorts(size: number): (ChannelPort | undefined)[][] {
  const rows: (ChannelPort | undefined)[][] = Array.from({ length: size }, () => [])
  for (let rank = 0; rank < size; rank++) {
    rows[rank]![rank] = undefined
    for (let peer = 0; peer < rank; peer++) {
      const { port1, port2 } = new MessageChannel()
      rows[rank]![peer] = port1
      rows[peer]![rank] = port2
    }
  }
  return rows
}

/** Rejects new groups: the ranks would need a shared store to make them. */
const noStore = new Proxy({} as Store, {
  get: () => () => {
    throw argumentError(
      'the group',
      'one that joinPorts made',
      'a group of ranks that share a store, because new groups need it',
    )
  },
})
