import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { Worker } from 'node:worker_threads'
import {
  count,
  launchedPlace,
  object,
  parseJson,
  placeVariables,
  text,
  tsrError,
  type Of,
} from '@tsrun/core'
import type { JobOptions, JoinedJob } from '@tsrun/distributed/transport'
import { connectStore, hostIdentity, memoryStore, reachableAddress } from '@tsrun/store'
import { low, mpiOn, openLibMpi, type LibMpi, type MpiCall } from './libmpi.ts'

/**
 * Joins the job of mpirun or srun, or makes a world of one if neither started this process. Rank
 * and number of ranks come from libmpi. Rank 0 hosts the store and sends its address by MPI_Bcast.
 *
 * @throws ERR_TSR_TRANSPORT_UNAVAILABLE without libmpi; ERR_TSR_MPI_LAUNCH when the variables of the
 *   launcher differ from what libmpi says; ERR_TSR_MPI
 */
export async function joinMpiJob(options: JobOptions): Promise<JoinedJob> {
  const { env } = process
  // A PMIx server does not set a variable for the number of ranks.
  const rankOfPmix = numberOf(env['PMIX_RANK'])
  const launched =
    launchedPlace(env) ??
    (rankOfPmix === undefined
      ? undefined
      : { rank: rankOfPmix, worldSize: undefined, variable: 'PMIX_RANK' })
  const expected = {
    rank: options.rank ?? numberOf(env['RANK']),
    worldSize: options.worldSize ?? numberOf(env['WORLD_SIZE']),
    variable: options.worldSize === undefined ? 'WORLD_SIZE' : 'the option worldSize',
  }
  if (launched === undefined) {
    if ((expected.worldSize ?? 1) === 1) return worldOfOne()
    const problem = `${expected.variable} says ${expected.worldSize} ranks, but neither mpirun nor srun has started this process`
    throw tsrError('ERR_TSR_MPI_LAUNCH', { problem })
  }
  const mpi = enterMpi()
  checkPlace(launched, mpi)
  checkPlace(expected, mpi)
  const { rank, worldSize } = mpi
  if (worldSize === 1) return worldOfOne()
  // With a PMIx server, MPI_Init may have set more variables.
  const known = launchedPlace(env)
  if (known !== undefined && env['RANK'] === undefined) Object.assign(env, placeVariables(known))
  const place = { rank, worldSize }
  const { store: given } = options
  if (given !== undefined) {
    return { place, store: given, isOwn: false, close: () => Promise.resolve() }
  }
  return { place, isOwn: true, ...(await openSharedStore(mpi, options)) }
}

function worldOfOne(): JoinedJob {
  const store = memoryStore()
  const place = { rank: 0, worldSize: 1 }
  return { place, store, isOwn: true, close: () => store.close() }
}

/** Rank and number of ranks; undefined if the launcher has not set the variables. */
interface Place {
  readonly rank: number | undefined
  readonly worldSize: number | undefined
  /** Name of the variable with the rank. */
  readonly variable: string
}

/** Checks that the launcher's variables agree with libmpi. */
function checkPlace({ worldSize, rank, variable }: Place, actual: MpiProcess) {
  const fits =
    (worldSize ?? actual.worldSize) === actual.worldSize && (rank ?? actual.rank) === actual.rank
  if (fits) return
  const place = `rank ${rank ?? 'unknown'} of ${worldSize ?? 'unknown'}`
  const problem = `${variable} says ${place}, but ${actual.library} rank ${actual.rank} of ${actual.worldSize}`
  throw tsrError('ERR_TSR_MPI_LAUNCH', { problem })
}

function numberOf(text: string | undefined) {
  return text !== undefined && /^\d+$/.test(text) ? Number(text) : undefined
}

/** The address of the store on rank 0, and the secret of the job. */
const storeAddress = object({ host: text, port: count(), token: text })

/** Opens the store that rank 0 hosts. All ranks must call it together. */
async function openSharedStore({ rank, isSame, broadcast }: MpiProcess, { timeout }: JobOptions) {
  const isOneHost = isSame(createHash('sha256').update(hostIdentity()).digest())
  const hosted =
    rank === 0
      ? await hostStore(
          isOneHost ? '127.0.0.1' : await reachableAddress(process.env['TSRUN_IFACE']),
        )
      : undefined
  const json = broadcast(JSON.stringify(hosted?.address ?? null))
  const told = parseJson(json, storeAddress)
  if (told === undefined) {
    const reason = 'it is not the address of a store; do all ranks run the same version of tsrun?'
    throw tsrError('ERR_TSR_MESSAGE_INVALID', { bytes: Buffer.byteLength(json), reason })
  }
  const store = await connectStore({ ...told, timeout })
  return {
    store,
    close: async () => {
      await store.close()
      await hosted?.close()
    },
  }
}

async function hostStore(
  host: string,
): Promise<{ readonly address: Of<typeof storeAddress>; close(): Promise<void> }> {
  const token = randomBytes(32).toString('hex')
  // Both src and dist are one level below the folder of the package.
  const entry = new URL('../dist/store-thread.js', import.meta.url)
  const thread = new Worker(entry, { workerData: { host, token }, execArgv: [] })
  const [port] = (await once(thread, 'message')) as [number]
  thread.unref()
  return {
    address: { host, port, token },
    close: async () => {
      thread.ref()
      const ended = once(thread, 'exit')
      thread.postMessage('close')
      await ended
    },
  }
}

/*
 * Enters and leaves MPI. A process enters MPI once, and leaves it once at a successful end. At a
 * failure it does not leave MPI, so that mpirun or srun ends the whole job.
 */

/**
 * The main thread enters and leaves MPI. The engine's thread calls MPI in between, never at the
 * same time.
 */
const THREAD_SERIALIZED = 2

const WORDS_BYTES = 1024

type MpiProcess = ReturnType<typeof enter>

let entered: (MpiProcess & { leave?: (code: number) => void }) | undefined

function enterMpi(): MpiProcess {
  entered ??= enter(openLibMpi())
  return entered
}

function enter(lib: LibMpi) {
  const bytes = new Uint8Array(new SharedArrayBuffer(WORDS_BYTES + 64))
  const { abi, call, address, integer } = mpiOn(bytes, lib)
  const ask = (name: MpiCall, ...args: number[]) => {
    call(name, ...args, address(0))
    return integer(0)
  }
  if (ask('Initialized') === 0) call('Init_thread', 0, 0, THREAD_SERIALIZED, address(0))
  if (ask('Query_thread') < THREAD_SERIALIZED) {
    const reason = `${lib.name} was built, or is started, without MPI_THREAD_SERIALIZED`
    throw tsrError('ERR_TSR_TRANSPORT_UNAVAILABLE', { transport: 'mpi', reason })
  }
  call('Comm_set_errhandler', abi.world, abi.errorsReturn)
  const worldSize = ask('Comm_size', abi.world)
  return {
    library: lib.name,
    rank: ask('Comm_rank', abi.world),
    worldSize,
    /** Returns the text that rank 0 passes, at most 1 KiB. All ranks call it together. */
    broadcast: (text: string): string => {
      const words = new TextEncoder().encode(text)
      bytes.fill(0)
      bytes.set(words.subarray(0, WORDS_BYTES))
      call('Bcast', address(0), WORDS_BYTES, abi.handles.byte, 0, abi.world)
      return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0)))
    },
    /** Returns whether all ranks pass the same digest. All ranks call it together. */
    isSame: (digest: Uint8Array): boolean => {
      const { length } = digest
      const all = new Uint8Array(new SharedArrayBuffer(length * (worldSize + 1)))
      all.set(digest, length * worldSize)
      const memory = mpiOn(all, lib)
      const own = [memory.address(length * worldSize), length, abi.handles.byte] as const
      call('Allgather', ...own, memory.address(0), length, abi.handles.byte, abi.world)
      return all.every((byte, i) => byte === digest[i % length])
    },
  }
}

/**
 * Leaves MPI at a successful exit, after the engine has ended. Only the last call has an effect.
 *
 * @param heap - the heap of the engine
 */
export function leaveMpiAtExit(heap: Uint8Array): void {
  if (entered === undefined) return
  if (entered.leave !== undefined) process.off('exit', entered.leave)
  const { integers } = mpiOn(heap, openLibMpi())
  entered.leave = (code) => {
    // Skip MPI_Finalize, which would wait forever for an operation that never ends.
    const hasAbandoned = integers[low.abandoned / 4] !== 0
    if (code === 0 && !hasAbandoned) openLibMpi().call('Finalize')
  }
  process.on('exit', entered.leave)
}
