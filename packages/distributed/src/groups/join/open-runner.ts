import { randomBytes } from 'node:crypto'
import { createLogger, messageOf, tsrError } from '@tsrun/core'
import { addressOfInterface, hostIdentity } from '@tsrun/store'
import { beginTrace } from '../../record/rank-trace.ts'
import { createMemory, heapOf } from '../../arena/heap.ts'
import { Journal } from '../../diagnosis/journal.ts'
import { openStatus } from '../../runners/status-page.ts'
import { createInlineRunner } from '../../runners/inline-runner.ts'
import { prepareTransport, type ConnectOptions } from '../../runners/open-transport.ts'
import type { Runner } from '../../runners/runner.ts'
import { startWorkerRunner } from '../../runners/worker-runner.ts'
import type { Endpoint } from '../../transports/dialer.ts'
import { createSegment } from '../../transports/shared-memory/segment.ts'
import type { BlockingTransport } from '../../transports/transport.ts'
import { addressForPeers, exchangeEndpoints } from './endpoints.ts'
import type { InitSettings, Joining } from './options.ts'
import { warnWithoutSharing } from './sharing.ts'

/** Bytes. If `reserveMemory` fails with less memory than this, it does not retry with even less. */
const SHORT_ARENA = 256 * 1024 * 1024

/**
 * Starts this rank's engine and connects it to the engines of all other ranks.
 *
 * @throws ERR_TSR_TRANSPORT_UNAVAILABLE, ERR_TSR_PORT_RANGE, ERR_TSR_CONNECT, ERR_TSR_ABORTED, and as
 *   `exchangeEndpoints`
 */
export async function openRunner(settings: InitSettings, joining: Joining): Promise<Runner> {
  const { rank, worldSize, engine, transport, arena } = settings
  const { protection } = settings.protection
  const { table: tuning, ...identity } = settings.tuning
  const memory = reserveMemory(rank, arena)
  const owner = { rank, worldSize, settings: settings.diagnosis }
  const journal = new Journal(owner, {
    status: openStatus(process.env, rank),
    traced: beginTracing(settings),
    generation: joining.generation,
  })
  if (worldSize === 1 || transport === 'fake') {
    return createInlineRunner({ memory, rank, worldSize, journal, tuning }, undefined)
  }
  const listen = { host: await listeningAddress(settings, joining), ports: settings.ports, rank }
  const { segment, refusal } = offerSegment(settings, memory)
  const exchange = async (endpoint: Endpoint): Promise<ConnectOptions> => {
    try {
      return await exchangeEndpoints(settings, joining, {
        ...endpoint,
        on: hostIdentity(),
        segment: segment?.address,
        refusal,
        tuning: identity,
        protection,
        ...(protection !== 'none' && { secret: randomBytes(32).toString('hex') }),
      })
    } finally {
      segment?.close()
    }
  }
  const options = { memory, rank, worldSize, transport, listen, journal, tuning }
  const { signal } = joining
  if (engine === 'worker') return await startWorkerRunner(options, exchange, signal)
  const prepared = await prepareTransport(transport, listen, 1)
  const connection = await exchange(prepared.endpoint).catch((error: unknown) => {
    prepared.close()
    throw error
  })
  const opened = await prepared.connect(heapOf(memory), connection, signal)
  // The inline engine is refused for the transport `node`, the only one that cannot block.
  return createInlineRunner(options, opened as BlockingTransport)
}

/**
 * Creates a memory of `bytes` bytes, or of less if the address space is short.
 *
 * @throws ERR_TSR_ARENA_UNAVAILABLE
 */
function reserveMemory(rank: number, bytes: number): WebAssembly.Memory {
  for (let tried = bytes; ; tried /= 4) {
    try {
      const memory = createMemory(tried)
      if (tried < bytes) {
        const facts = { rank, bytes: tried, wanted: bytes }
        createLogger('distributed').warn(
          facts,
          'the address space is short, so the arena is smaller',
        )
      }
      return memory
    } catch (cause) {
      if (tried >= SHORT_ARENA) continue
      const { message: reason } = cause as RangeError
      throw tsrError('ERR_TSR_ARENA_UNAVAILABLE', { rank, bytes, reason }, { cause })
    }
  }
}

/**  @throws ERR_TSR_ENVIRONMENT */
function beginTracing({ rank, worldSize, environment, diagnosis }: InitSettings) {
  const { runId, restartCount } = diagnosis
  const node = environment?.nodeRank ?? 0
  return beginTrace(process.env, { rank, worldSize, node, runId, restartCount })?.recorder
}

async function listeningAddress(
  { environment, iface }: InitSettings,
  { from }: Joining,
): Promise<string> {
  if (iface !== undefined) return addressOfInterface(iface)
  if (environment === undefined) return '127.0.0.1'
  return await addressForPeers(environment, from)
}

/**
 * @returns the segment; or `refusal`, the reason why this rank cannot join. The refusal is published,
 *   so that the other ranks do not wait for this rank.
 */
function offerSegment({ rank, sharedMemory }: InitSettings, memory: WebAssembly.Memory) {
  if (sharedMemory === 'off') return {}
  try {
    return { segment: createSegment(memory) }
  } catch (error) {
    const reason = messageOf(error)
    if (sharedMemory === 'required') {
      return { refusal: `rank ${rank} cannot make memory that is shared: ${reason}` }
    }
    warnWithoutSharing(reason)
    return {}
  }
}
