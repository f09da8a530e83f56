import { dtypes, type DType, type ReduceOp } from '@tsrun/distributed/transport'
import type { SharedLibrary } from '@tsrun/native'

/*
 * The binary interface of libmpi. MPI has no common one yet. In Open MPI, handles are addresses of
 * exported objects. In MPICH and its derivatives (Intel, Cray, MVAPICH), handles are integers from
 * mpi.h.
 */

/** An MPI handle: an address, or an integer from mpi.h. */
export type Handle = number

/** The definitions of mpi.h in one family of libraries. */
export interface MpiAbi {
  readonly family: 'Open MPI' | 'MPICH'
  /** C type of a handle. */
  readonly handleType: 'size_t' | 'int'
  readonly handleBytes: 4 | 8
  readonly world: Handle
  readonly errorsReturn: Handle
  /** Handles of types and reductions, by the suffix of their C name, such as `float`. */
  readonly handles: Readonly<Record<HandleName, Handle>>
  readonly inPlace: number | bigint
  readonly statusIgnore: number
  readonly anySource: number
  /** Offset of MPI_SOURCE in an MPI_Status. The status has at most 24 bytes. */
  readonly sourceAt: number
}

const mpich = {
  float: 0x4c00040a,
  double: 0x4c00080b,
  uint16_t: 0x4c00023c,
  int32_t: 0x4c000439,
  int64_t: 0x4c00083a,
  byte: 0x4c00010d,
  op_sum: 0x58000003,
  op_prod: 0x58000004,
} as const

export type HandleName = keyof typeof mpich

export function abiOf(library: SharedLibrary): MpiAbi {
  const world = library.symbol('ompi_mpi_comm_world')
  return world === undefined ? mpichAbi : openMpiAbi(library, world)
}

const mpichAbi: MpiAbi = {
  family: 'MPICH',
  handleType: 'int',
  handleBytes: 4,
  world: 0x44000000,
  errorsReturn: 0x54000001,
  handles: mpich,
  inPlace: 0xffff_ffff_ffff_ffffn,
  statusIgnore: 1,
  anySource: -2,
  sourceAt: 8,
}

function openMpiAbi(library: SharedLibrary, world: Handle): MpiAbi {
  const names = Object.keys(mpich) as HandleName[]
  const symbolOf = (name: string): Handle => library.symbol(`ompi_mpi_${name}`) ?? 0
  return {
    family: 'Open MPI',
    handleType: 'size_t',
    handleBytes: 8,
    world,
    errorsReturn: symbolOf('errors_return'),
    handles: Object.fromEntries(names.map((name) => [name, symbolOf(name)])) as MpiAbi['handles'],
    inPlace: 1n,
    statusIgnore: 0,
    anySource: -1,
    sourceAt: 0,
  }
}

type Handles = MpiAbi['handles']

/** C types that libmpi reduces. */
const numbers: Readonly<Partial<Record<DType, HandleName>>> = {
  float32: 'float',
  float64: 'double',
  int32: 'int32_t',
  int64: 'int64_t',
}

/** The reductions of libmpi. An average is computed as a sum, and divided at the end. */
const sums: Readonly<Partial<Record<ReduceOp, HandleName>>> = {
  sum: 'op_sum',
  avg: 'op_sum',
  product: 'op_prod',
}

/** Returns an MPI type of the same size, for elements that libmpi only moves. */
export function movedType(handles: Handles, dtype: DType): Handle {
  switch (dtypes[dtype].bytes) {
    case 1:
      return handles.byte
    case 2:
      return handles.uint16_t
    case 8:
      return handles.int64_t
    default:
      return handles.int32_t
  }
}

/** Returns the handles of a type and a reduction; undefined if the engine must reduce instead. */
export function reductionHandles(
  handles: Handles,
  reduction: ReduceOp,
  dtype: DType,
): readonly [type: Handle, reduction: Handle] | undefined {
  const [type, name] = [numbers[dtype], sums[reduction]]
  return type === undefined || name === undefined ? undefined : [handles[type], handles[name]]
}
