import { tsrError } from '@tsrun/core'
import { addressOfInterface, hostIdentity, localAddressTowards } from '@tsrun/store'
import { identityOf } from '../../algorithms/tuning.ts'
import { Arena } from '../../arena/arena.ts'
import { createMemory, heapOf, type Heap } from '../../arena/heap.ts'
import { Diagnosis } from '../../diagnosis/diagnosis.ts'
import { Journal } from '../../diagnosis/journal.ts'
import { openStatus } from '../../diagnosis/status.ts'
import { Engine } from '../../engine/engine.ts'
import type { ObservedEngine } from '../../engine/observer.ts'
import { InlineRunner } from '../../runners/inline-runner.ts'
import { prepareTransport, type ConnectOptions } from '../../runners/open-transport.ts'
import type { Runner } from '../../runners/runner.ts'
import { WorkerRunner } from '../../runners/worker-runner.ts'
import type { Endpoint } from '../../transports/mesh.ts'
import { createSegment, type Segment } from '../../transports/shared-memory/segment.ts'
import type { BlockingTransport } from '../../transports/transport.ts'
import { exchangeEndpoints } from './endpoints.ts'
import type { Joining } from './generations.ts'
import type { InitSettings } from './options.ts'
import { warnWithoutSharing } from './sharing.ts'

/** Starts this rank's engine, connected with those of all others. */
export async function openRunner(settings: InitSettings, joining: Joining): Promise<Runner> {
  const { rank, worldSize, engine, transport, arena } = settings
  const { signal } = joining
  const { ladders } = settings.tuning
  const memory = createMemory(arena)
  const journal = new Journal({ rank, worldSize, settings: settings.diagnosis })
  journal.publishAt(openStatus(process.env, rank))
  const runInline = (heap: Heap, transport: BlockingTransport | undefined): InlineRunner => {
    const { shared } = journal
    const observe = (engine: ObservedEngine): Diagnosis => new Diagnosis(shared, engine)
    const inline = new Engine({ heap, rank, worldSize, transport, observe, ladders })
    return new InlineRunner(inline, new Arena(heap, rank), journal, transport)
  }
  if (worldSize === 1) return runInline(heapOf(memory), undefined)
  const listen = { host: await listeningAddress(settings), ports: settings.ports, rank }
  const { segment, refusal } = offerSegment(settings, memory)
  const exchange = async (endpoint: Endpoint): Promise<ConnectOptions> => {
    try {
      return await exchangeEndpoints(settings, joining, {
        ...endpoint,
        on: hostIdentity(),
        segment: segment?.address,
        ...(refusal !== undefined && { refusal }),
        tuning: identityOf(settings.tuning),
      })
    } finally {
      segment?.seal()
    }
  }
  if (engine === 'worker') {
    const place = { rank, worldSize, transport, listen }
    const worker = new WorkerRunner({ memory, ...place, journal, ladders })
    await worker.start(exchange, signal)
    return worker
  }
  const heap = heapOf(memory)
  const prepared = await prepareTransport(transport, listen)
  const mesh = await exchange(prepared.endpoint).catch((error: unknown) => {
    prepared.close()
    throw error
  })
  const opened = await prepared.connect(heap, mesh, signal)
  if (opened.kind !== 'blocking') {
    const reason = 'it cannot block, which the inline engine needs'
    throw tsrError('ERR_TSR_TRANSPORT_UNAVAILABLE', { transport, reason })
  }
  return runInline(heap, opened.transport)
}

async function listeningAddress({ environment, iface }: InitSettings): Promise<string> {
  if (iface !== undefined) return addressOfInterface(iface)
  if (environment === undefined) return '127.0.0.1'
  return await localAddressTowards(environment.masterAddr, environment.masterPort)
}

interface SegmentOffer {
  readonly segment?: Segment
  /** Why this rank cannot join: the others have to know before it gives up. */
  readonly refusal?: string
}

/** Makes a heap that can be shared, where that is wanted and possible. */
function offerSegment(
  { rank, sharedMemory }: InitSettings,
  memory: WebAssembly.Memory,
): SegmentOffer {
  if (sharedMemory === 'off') return {}
  try {
    return { segment: createSegment(memory) }
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error)
    if (sharedMemory === 'required') {
      return { refusal: `rank ${rank} cannot make memory that is shared: ${reason}` }
    }
    warnWithoutSharing(reason)
    return {}
  }
}
