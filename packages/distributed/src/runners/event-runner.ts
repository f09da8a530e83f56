import { tsrError } from '@tsrun/core'
import { createArena } from '../arena/arena.ts'
import { diagnose } from '../diagnosis/diagnosis.ts'
import { Journal } from '../diagnosis/journal.ts'
import { quietDiagnosis } from '../diagnosis/settings.ts'
import { createEngine, type Engine, type EngineOptions } from '../engine/engine.ts'
import type { EventTransport, Transport } from '../transports/transport.ts'
import { createEngineDriver } from './engine-driver.ts'
import { LEAVE_TIME } from './polling-engine.ts'
import { destroyedError, type Runner } from './runner.ts'

export interface EventRunnerOptions extends Pick<
  EngineOptions,
  'heap' | 'rank' | 'worldSize' | 'onMessage'
> {
  readonly transport: Transport
  /** Called when the engine has something to do. */
  readonly wake: () => void
  /** Delivers all sent data, then closes the connections. */
  readonly leave?: () => Promise<void>
}

/**
 * Creates an engine and its runner. The caller polls the engine between the turns of the event loop of
 * the calling thread. Only asynchronous calls work.
 */
export function createEventRunner({ wake, leave, ...options }: EventRunnerOptions) {
  const { rank, worldSize, transport } = options
  const journal = new Journal({ rank, worldSize, settings: quietDiagnosis })
  const { shared } = journal
  const engine = createEngine({ ...options, observe: (observed) => diagnose(shared, observed) })
  const driver = createEngineDriver(engine, {
    prepareFor: wake,
    poll: () => undefined,
    block: (_, name) => {
      throw tsrError('ERR_TSR_SYNC_UNSUPPORTED', { operation: name, engine: 'world' })
    },
    attend: () => undefined,
  })
  const runner: Runner = {
    transport: transport.name,
    arena: createArena(engine.heap, engine.rank),
    journal,
    addGroup: engine.addGroup,
    removeGroup: engine.removeGroup,
    failGroup: (id, reason) => {
      engine.failGroup(id, reason)
      wake()
    },
    gone: () => engine.gone,
    driverOf: () => driver,
    prefersCaller: () => false,
    close: async () => {
      engine.sayGoodbye()
      if (leave !== undefined) await leave()
      engine.failAll(destroyedError('An operation'))
      wake()
    },
  }
  return { engine, runner }
}

/** Shuts down gracefully, like `leave` of a polling engine, but on an event loop. */
export async function leaveOnEvents(engine: Engine, transport: EventTransport): Promise<void> {
  engine.sayGoodbye()
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, LEAVE_TIME)
    transport.onReady = () => {
      while (engine.progress());
      if (engine.hasOutgoing() || engine.hasPeers()) return
      clearTimeout(timer)
      resolve()
    }
    transport.onReady()
  })
}
