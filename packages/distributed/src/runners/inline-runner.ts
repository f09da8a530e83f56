import { createArena } from '../arena/arena.ts'
import { heapOf } from '../arena/heap.ts'
import { diagnose } from '../diagnosis/diagnosis.ts'
import { createEngine } from '../engine/engine.ts'
import { fakePeers } from '../engine/fake-peers.ts'
import type { BlockingTransport } from '../transports/transport.ts'
import { destroyedError, type Runner, type RunnerOptions } from './runner.ts'
import { createPollingEngine } from './polling-engine.ts'
import { createCallingThread, type CallingThread } from './calling-thread/calling-thread.ts'
import { createEngineDriver } from './engine-driver.ts'
import type { Ticket } from '../ticket.ts'

/** Milliseconds to poll between turns of the event loop while operations are awaited. */
const HOLD = 5
/** Milliseconds between polls while nothing is awaited: other ranks may wait for data. */
const POLL_PERIOD = 2

/**
 * Runs the engine on the calling thread while the caller waits. The latency is the lowest, but
 * communication does not overlap with computation. While no operation is awaited, only data that
 * sockets have already accepted moves.
 */
export function createInlineRunner(
  { memory, rank, worldSize, journal, tuning }: Omit<RunnerOptions, 'transport' | 'listen'>,
  transport: BlockingTransport | undefined,
): Runner {
  const { shared } = journal
  const heap = heapOf(memory)
  const engine = createEngine({
    heap,
    rank,
    worldSize,
    transport,
    collectives: transport === undefined ? fakePeers : undefined,
    tuning,
    observe: (observed) => diagnose(shared, observed),
  })
  const arena = createArena(heap, rank)
  const polling = createPollingEngine(engine, transport)
  const awaited = new Set<Ticket>()
  let isPumping = false
  let isClosed = false

  /** Removes settled tickets. Returns whether to return to the event loop. */
  const removeSettled = (): boolean => {
    let any = false
    for (const ticket of awaited) {
      // The ticket may have a new run on another driver.
      if (ticket.driver === driver && !ticket.isSettled) continue
      awaited.delete(ticket)
      any = true
    }
    return any || awaited.size === 0
  }

  /** Alternates between the engine and the event loop while operations are awaited. */
  const pump = (): void => {
    if (isPumping) return
    isPumping = true
    const turn = (): void => {
      polling.runUntil(removeSettled, HOLD)
      if (awaited.size > 0) setImmediate(turn)
      else isPumping = false
    }
    setImmediate(turn)
  }

  const driver = createEngineDriver(engine, {
    prepareFor: (next) => {
      if (isClosed) throw destroyedError(next.name)
      callingThread?.flushBefore(next)
    },
    poll: () => {
      polling.poll()
    },
    block: (ticket) => {
      polling.runUntil(() => ticket.isSettled, Infinity)
    },
    spinBriefly: (ticket) => {
      polling.runUntil(() => ticket.isSettled, HOLD)
    },
    attend: (ticket) => {
      awaited.add(ticket)
      pump()
    },
  })

  const { kernels, epochs } = engine
  const { slots, hosts, place } = transport ?? {}
  const callingThread: CallingThread | undefined =
    slots &&
    hosts &&
    epochs &&
    createCallingThread({
      slots,
      kernels,
      rank,
      hosts,
      epochs,
      arena,
      journal,
      place,
      mail: hosts.map((_, peer) => transport?.mail?.(peer)),
      // Leave large operations to the engine, which is on this thread, too.
      get: undefined,
      isIdle: () => !engine.hasRunning() && !engine.hasOutgoing(),
      engine: driver,
    })

  /** Shuts down gracefully only if the script ends without an error. */
  const onExit = (code: number): void => {
    if (code === 0) polling.leave()
    else journal.dumpFailure(`the process exits with code ${code}`)
  }
  process.on('exit', onExit)
  // Poll at intervals. Other ranks may need data from this rank while it waits for something else,
  // such as the store.
  const polls =
    transport?.movesWhenLookedAt === true
      ? setInterval(() => {
          if (!isPumping) polling.poll()
        }, POLL_PERIOD).unref()
      : undefined

  return {
    transport: transport?.name ?? 'none',
    arena,
    journal,
    addGroup: (id, name, ranks) => {
      if (isClosed) throw destroyedError('newGroup')
      engine.addGroup(id, name, ranks)
      callingThread?.addGroup(id, name, ranks)
    },
    removeGroup: (id) => {
      callingThread?.removeGroup(id)
      engine.removeGroup(id)
    },
    failGroup: engine.failGroup,
    // Poll before reading, because nothing else polls the engine while no operation is awaited.
    gone: () => {
      if (!isClosed) polling.poll()
      return engine.gone
    },
    driverOf: (operation) => {
      if (isClosed) throw destroyedError(operation.name)
      return callingThread?.driver ?? driver
    },
    prefersCaller: ({ group }) => callingThread?.reaches(group) === true,
    close: async () => {
      process.off('exit', onExit)
      clearInterval(polls)
      if (isClosed) return
      isClosed = true
      polling.leave()
      await Promise.resolve()
    },
  }
}
