import { tsrError } from '@tsrun/core'
import { openLibMpi, type LibMpi, type MpiCall } from './libmpi.ts'
import { low, mpiOn } from './memory.ts'

/*
 * Enters and leaves MPI. A process enters MPI once, and leaves it once at a successful end. At a
 * failure it does not leave MPI, so that mpirun or srun ends the whole job.
 */

/**
 * The main thread enters and leaves MPI. The engine's thread calls MPI in between, never at the
 * same time.
 */
const THREAD_SERIALIZED = 2

/** Bytes that ranks exchange when they enter MPI. */
const WORDS_BYTES = 1024

export type MpiProcess = ReturnType<typeof enter>

/** MPI can be entered only once in a process. */
let entered: (MpiProcess & { leave?: (code: number) => void }) | undefined

/** @throws ERR_TSR_TRANSPORT_UNAVAILABLE, ERR_TSR_MPI */
export function enterMpi(): MpiProcess {
  entered ??= enter(openLibMpi())
  return entered
}

function enter(lib: LibMpi) {
  const bytes = new Uint8Array(new SharedArrayBuffer(WORDS_BYTES + 64))
  const { abi, call, address, integer } = mpiOn(bytes, lib)
  const ask = (name: MpiCall, ...args: number[]): number => {
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
    /**
     * Returns on all ranks the text that rank 0 passes, at most 1 KiB. All ranks call it together.
     */
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
