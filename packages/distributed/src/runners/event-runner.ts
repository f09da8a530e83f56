import { tsrError } from '@tsrun/core'
import { createArena } from '../arena/arena.ts'
import type { Journal } from '../diagnosis/journal.ts'
import type { Engine } from '../engine/engine.ts'
import type { EventTransport } from '../transports/transport.ts'
import { createEngineDriver } from './engine-driver.ts'
import { LEAVE_TIME } from './polling-engine.ts'
import { destroyedError, type Runner } from './runner.ts'

export interface EventRunnerParts {
  readonly engine: Engine
  readonly journal: Journal
  /** The name of the transport. */
  readonly transport: string
  /** Called when the engine has something to do. */
  readonly wake: () => void
  /** Delivers what was sent, and closes the connections. */
  readonly leave?: () => Promise<void>
}

/**
 * Makes a runner whose engine is polled between the turns of the event loop of the calling thread. Only
 * asynchronous calls work.
 */
export function eventRunner(parts: EventRunnerParts): Runner {
  const { engine, journal, transport, wake, leave } = parts
  const driver = createEngineDriver(engine, {
    prepareFor: wake,
    poll: () => undefined,
    block: (_, name) => {
      throw tsrError('ERR_TSR_SYNC_UNSUPPORTED', { operation: name, engine: 'world' })
    },
    attend: () => undefined,
  })
  return {
    kind: 'world',
    transport,
    arena: createArena(engine.heap, engine.rank),
    journal,
    addGroup: engine.addGroup,
    removeGroup: engine.removeGroup,
    failGroup: (id, reason) => {
      engine.failGroup(id, reason)
      wake()
    },
    gone: engine.gone,
    driverOf: () => driver,
    prefersCaller: () => false,
    close: async () => {
      engine.sayGoodbye()
      if (leave !== undefined) await leave()
      engine.failAll(destroyedError('An operation'))
      wake()
    },
  }
}

/** Shuts down gracefully, like `PollingEngine.leave`, but on an event loop. */
export async function leaveOnEvents(engine: Engine, transport: EventTransport): Promise<void> {
  engine.sayGoodbye()
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, LEAVE_TIME)
    transport.onReady = () => {
      while (engine.progress());
      if (engine.hasOutgoing || engine.hasPeers) return
      clearTimeout(timer)
      resolve()
    }
    transport.onReady()
  })
}
