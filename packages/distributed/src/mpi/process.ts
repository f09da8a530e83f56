import { tsrError } from '@tsrun/core'
import { low } from './layout.ts'
import { openLibMpi, type LibMpi } from './libmpi.ts'
import { NativeMemory } from './native-memory.ts'

/*
 * A process enters MPI once and leaves it once: at its end, when all went well. One that ends
 * otherwise does not take leave, and so mpirun or srun ends the whole job.
 */

/** The engine's thread calls libmpi, but the main thread enters and leaves: never both at once. */
const THREAD_SERIALIZED = 2

/** Bytes of what ranks tell each other when they enter. */
const WORDS_BYTES = 1024

export interface MpiProcess {
  readonly library: string
  readonly rank: number
  readonly worldSize: number
  /** What rank 0 says, at most 1 KiB of text; all ranks call it together. */
  readonly broadcast: (text: string) => string
  /** Whether all ranks say the same; all ranks call it together. */
  readonly isSame: (digest: Uint8Array) => boolean
}

let entered: MpiProcess | undefined

/** @throws ERR_TSR_TRANSPORT_UNAVAILABLE, ERR_TSR_MPI */
export function enterMpi(): MpiProcess {
  entered ??= enter(openLibMpi())
  return entered
}

function enter(mpi: LibMpi): MpiProcess {
  const { abi, call } = mpi
  const bytes = new Uint8Array(new SharedArrayBuffer(WORDS_BYTES + 64))
  const native = new NativeMemory(bytes, abi)
  const ask = (name: 'Initialized' | 'Query_thread'): number => {
    call(name, native.address(0))
    return native.integer(0)
  }
  const askWorld = (name: 'Comm_rank' | 'Comm_size'): number => {
    call(name, abi.world, native.address(0))
    return native.integer(0)
  }
  if (ask('Initialized') === 0) call('Init_thread', 0, 0, THREAD_SERIALIZED, native.address(0))
  if (ask('Query_thread') < THREAD_SERIALIZED) {
    const reason = `${mpi.name} was built, or is started, without MPI_THREAD_SERIALIZED`
    throw tsrError('ERR_TSR_TRANSPORT_UNAVAILABLE', { transport: 'mpi', reason })
  }
  call('Comm_set_errhandler', abi.world, abi.errorsReturn)
  const worldSize = askWorld('Comm_size')
  return {
    library: mpi.name,
    rank: askWorld('Comm_rank'),
    worldSize,
    broadcast: (text) => {
      const words = new TextEncoder().encode(text)
      bytes.fill(0)
      bytes.set(words.subarray(0, WORDS_BYTES))
      call('Bcast', native.address(0), WORDS_BYTES, abi.handles.byte, 0, abi.world)
      return new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0)))
    },
    isSame: (digest) => {
      const { length } = digest
      const all = new Uint8Array(new SharedArrayBuffer(length * (worldSize + 1)))
      all.set(digest, length * worldSize)
      const memory = new NativeMemory(all, abi)
      const own = [memory.address(length * worldSize), length, abi.handles.byte] as const
      call('Allgather', ...own, memory.address(0), length, abi.handles.byte, abi.world)
      return all.every((byte, i) => byte === digest[i % length])
    },
  }
}

let leave: ((code: number) => void) | undefined

/**
 * Leaves MPI when the process ends well; after the engine, so the last one to call it counts.
 *
 * @param heap - of the engine
 */
export function leaveMpiAtExit(heap: Uint8Array): void {
  if (entered === undefined) return
  if (leave !== undefined) process.off('exit', leave)
  const { integers } = new NativeMemory(heap, openLibMpi().abi)
  leave = (code) => {
    // with an operation that never ends this would never end either
    const hasAbandoned = integers[low.abandoned / 4] !== 0
    if (code === 0 && !hasAbandoned) openLibMpi().call('Finalize')
  }
  process.on('exit', leave)
}
