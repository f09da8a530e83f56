import { tsrError } from '@tsrun/core'
import { addressOf, isAvailable, openSharedLibrary, type SharedLibrary } from '@tsrun/native'
import { abiOf } from './abi.ts'

/** A pointer argument, or a constant that stands for a pointer. */
type Address = number | bigint

/**
 * The functions of libmpi that are used, without the prefix `MPI_`. The texts give the C types of
 * their arguments: `p` for a pointer, `h` for a handle, `i` for an int.
 */
const signatures = {
  Initialized: 'p',
  Init_thread: 'ppip',
  Query_thread: 'p',
  Finalize: '',
  Comm_rank: 'hp',
  Comm_size: 'hp',
  Comm_dup: 'hp',
  Comm_free: 'p',
  Comm_group: 'hp',
  Comm_create_group: 'hhip',
  Comm_set_errhandler: 'hh',
  Group_incl: 'hipp',
  Group_free: 'p',
  Bcast: 'pihih',
  Allgather: 'pihpihh',
  Isend: 'pihiihp',
  Irecv: 'pihiihp',
  Test: 'ppp',
  Cancel: 'p',
  Get_count: 'php',
  Ibcast: 'pihihp',
  Ireduce: 'ppihhihp',
  Iallreduce: 'ppihhhp',
  Ireduce_scatter_block: 'ppihhhp',
  Iallgather: 'pihpihhp',
  Igather: 'pihpihihp',
  Iscatter: 'pihpihihp',
  Ialltoall: 'pihpihhp',
  Ibarrier: 'hp',
} as const

export type MpiCall = keyof typeof signatures

export type LibMpi = ReturnType<typeof bind>

/** Largest size in bytes of an MPI_Error_string. */
const LONGEST_ERROR = 512

let opened: LibMpi | undefined

/**
 * Loads libmpi: the library that TSRUN_LIBMPI names, or else the library of the launcher that
 * started this process.
 *
 * @throws ERR_TSR_TRANSPORT_UNAVAILABLE
 */
export function openLibMpi(): LibMpi {
  if (opened !== undefined) return opened
  const native = isAvailable()
  if (!native.available) throw unavailable(native.reason)
  disableMemoryHooks()
  const names = candidates(process.env)
  const library = openSharedLibrary(names)
  if (library === undefined) throw unavailable(`found no libmpi (tried ${names.join(', ')})`)
  if (library.symbol('MPI_Init_thread') === undefined) {
    throw unavailable(`${library.name} is not libmpi`)
  }
  opened = bind(library)
  return opened
}

/**
 * Disables UCX's memory hooks, unless the user has set the variable. Many MPI libraries use UCX. To
 * test its hooks, UCX moves the end of the process's heap up and back (`ucm_fire_mmap_events`). If
 * another thread of Node allocates memory there at the same time, that memory is lost. UCX reads
 * the variable when it is loaded.
 */
function disableMemoryHooks() {
  process.env['UCX_MEM_EVENTS'] ??= 'n'
}

function unavailable(reason: string) {
  return tsrError('ERR_TSR_TRANSPORT_UNAVAILABLE', { transport: 'mpi', reason })
}

/**
 * Returns the file names of libmpi. Suffix .40 is Open MPI 4 and 5; .12 is MPICH 3.1 or later and
 * its derivatives.
 */
function candidates(env: NodeJS.ProcessEnv) {
  const given = env['TSRUN_LIBMPI']
  if (given !== undefined && given !== '') return [given]
  const openMpi = ['libmpi.so.40', 'libmpi.so']
  const mpich = ['libmpi.so.12', 'libmpich.so.12']
  const isHydra = env['PMI_RANK'] !== undefined && env['OMPI_COMM_WORLD_RANK'] === undefined
  return isHydra ? [...mpich, ...openMpi] : [...openMpi, ...mpich]
}

function bind(library: SharedLibrary) {
  const abi = abiOf(library)
  const types: Readonly<Record<string, string>> = { p: 'size_t', h: abi.handleType, i: 'int' }
  const bound = new Map<MpiCall, (...args: Address[]) => number>()
  const bindOne = (name: MpiCall): ((...args: Address[]) => number) => {
    const parameters = Array.from(signatures[name])
      .map((kind) => types[kind]!)
      .join(', ')
    const call = library.bind<Address[], number>(`int MPI_${name}(${parameters})`)
    bound.set(name, call)
    return call
  }
  const describe = library.bind<Address[], number>('int MPI_Error_string(int, size_t, size_t)')
  const reasonOf = (code: number) => {
    const room = new Uint8Array(new SharedArrayBuffer(8 + LONGEST_ERROR))
    const at = addressOf(room)
    if (describe(code, at + 8, at) !== 0) return `error ${code}`
    return new TextDecoder().decode(room.slice(8, room.indexOf(0, 8)))
  }
  return {
    name: library.name,
    abi,
    /** Calls `MPI_<name>`. @throws ERR_TSR_MPI */
    call: (name: MpiCall, ...args: Address[]): void => {
      const code = (bound.get(name) ?? bindOne(name))(...args)
      if (code === 0) return
      const facts = { call: `MPI_${name}`, library: library.name, reason: reasonOf(code) }
      throw tsrError('ERR_TSR_MPI', facts)
    },
  }
}

export type Mpi = ReturnType<typeof mpiOn>

/** Returns libmpi with functions that take offsets in the heap of a rank. */
export function mpiOn(bytes: Uint8Array, { abi, call }: LibMpi) {
  const base = addressOf(bytes)
  const integers = new Int32Array(bytes.buffer)
  const words = new Uint32Array(bytes.buffer)
  const address = (at: number) => base + at
  const integer = (at: number) => integers[at / 4]!
  return {
    abi,
    call,
    integers,
    address,
    integer,
    handle: (at: number): number => {
      if (abi.handleBytes === 4) return integer(at)
      return words[at / 4]! + words[at / 4 + 1]! * 2 ** 32
    },
    putHandle: (at: number, handle: number): void => {
      words[at / 4] = handle
      if (abi.handleBytes === 8) words[at / 4 + 1] = Math.floor(handle / 2 ** 32)
    },
    /** Whether the request at offset `request` is done. Writes its status to the address `status`. */
    isDone: (request: number, status = abi.statusIgnore): boolean => {
      call('Test', address(request), address(low.flag), status)
      return integer(low.flag) !== 0
    },
  }
}

/** Offsets, in the first 128 bytes of the heap, of values that libmpi reads and writes. */
export const low = {
  /** Number of failed operations whose buffers libmpi may still use. `leaveMpiAtExit` reads it. */
  abandoned: 0,
  flag: 8,
  count: 16,
  handle: 24,
  status: 64,
} as const

const SMALL_BYTES = 128
/** Number of posted receives from any source. */
const RECEIVES = 8
/** Largest number of pending sends to one rank. */
export const SENDS = 2
const REQUEST_BYTES = 8
const LARGEST_SLOT = 64 * 1024
const SMALLEST_SLOT = 4096

/**
 * Lays out slots, each for a message and its request, in at most a quarter of the engine's memory. Returns
 * undefined if that is too little.
 */
export function layOut(worldSize: number, engineBytes: number) {
  const slots = RECEIVES + SENDS * worldSize
  let slotBytes = LARGEST_SLOT
  while (slots * slotBytes > engineBytes / 4) slotBytes /= 2
  if (slotBytes < SMALLEST_SLOT) return undefined
  const dataAt = Math.ceil((SMALL_BYTES + slots * REQUEST_BYTES) / 64) * 64
  const all = Array.from({ length: slots }, (_, i) => ({
    data: dataAt + i * slotBytes,
    request: SMALL_BYTES + i * REQUEST_BYTES,
  }))
  return {
    slotBytes,
    receives: all.slice(0, RECEIVES),
    /** SENDS slots for each rank. */
    sends: all.slice(RECEIVES),
    end: dataAt + slots * slotBytes,
  }
}
