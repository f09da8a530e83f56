import { tsrError } from '@tsrun/core'
import { heapOf } from '../arena/heap.ts'
import type { Endpoint } from '../transports/dialer.ts'
import { createInlineRunner } from './inline-runner.ts'
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
  const prepared = await prepareTransport(name, listen, 1)
  const connection = await exchange(prepared.endpoint).catch((error: unknown) => {
    prepared.close()
    throw error
  })
  const transport = await prepared.connect(heapOf(options.memory), connection, signal)
  if (!('sleep' in transport)) {
    const reason = 'it cannot block, which the inline engine needs'
    throw tsrError('ERR_TSR_TRANSPORT_UNAVAILABLE', { transport: name, reason })
  }
  return createInlineRunner(options, transport)
}

/** Starts the engine of a world of one rank, or of one rank of a fake world. */
export function startLonelyRunner(options: Omit<RunnerOptions, 'transport' | 'listen'>): Runner {
  return createInlineRunner(options, undefined)
}
