import { tsrError } from '@tsrun/core'
import { createArena } from '../arena/arena.ts'
import { heapOf, type Heap } from '../arena/heap.ts'
import { diagnose } from '../diagnosis/diagnosis.ts'
import { createEngine } from '../engine/engine.ts'
import { fakePeers } from '../engine/fake-peers.ts'
import type { Endpoint } from '../transports/dialer.ts'
import type { BlockingTransport } from '../transports/transport.ts'
import { createInlineRunner } from './inline-runner.ts'
import { copyStatus } from './status-page.ts'
import { prepareTransport, type ConnectOptions } from './open-transport.ts'
import type { Runner, RunnerOptions } from './runner.ts'
import { startWorkerRunner } from './worker-runner.ts'

/**
 * Starts this rank's engine and connects it to the engines of all other ranks.
 *
 * @param exchange - publishes this rank's endpoint and resolves to the endpoints of all ranks
 * @throws ERR_TSR_TRANSPORT_UNAVAILABLE, ERR_TSR_PORT_RANGE, ERR_TSR_CONNECT, ERR_TSR_ABORTED
 */
export async function startRunner(
  where: 'worker' | 'inline',
  options: RunnerOptions,
  exchange: (endpoint: Endpoint) => Promise<ConnectOptions>,
  signal?: AbortSignal,
): Promise<Runner> {
  if (where === 'worker') return await startWorkerRunner(options, exchange, signal)
  const { transport: name, listen } = options
  const heap = heapOf(options.memory)
  const prepared = await prepareTransport(name, listen, 1)
  const connection = await exchange(prepared.endpoint).catch((error: unknown) => {
    prepared.close()
    throw error
  })
  const { kind, transport } = await prepared.connect(heap, connection, signal)
  if (kind !== 'blocking') {
    const reason = 'it cannot block, which the inline engine needs'
    throw tsrError('ERR_TSR_TRANSPORT_UNAVAILABLE', { transport: name, reason })
  }
  return inlineRunner(options, heap, transport)
}

/** Starts the engine of a world of one rank, or of one rank of a fake world. */
export function startLonelyRunner(options: Omit<RunnerOptions, 'transport' | 'listen'>): Runner {
  return inlineRunner(options, heapOf(options.memory), undefined)
}

function inlineRunner(
  { rank, worldSize, journal, tuning }: Omit<RunnerOptions, 'transport' | 'listen'>,
  heap: Heap,
  transport: BlockingTransport | undefined,
): Runner {
  const { shared } = journal
  copyStatus(shared)
  const engine = createEngine({
    heap,
    rank,
    worldSize,
    transport,
    collectives: transport === undefined ? fakePeers : undefined,
    tuning,
    observe: (observed) => diagnose(shared, observed),
  })
  return createInlineRunner(engine, createArena(heap, rank), journal, transport)
}
