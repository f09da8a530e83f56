import type { TensorFlowManifest } from '@tsrun/core'
import type { NodeAbilities } from '../job/code/script.ts'

/** The facts about this host, which the checks assess. */
export interface Facts {
  /** The optional package `@tsrun/observe`, and whether its version matches tsrun. */
  readonly observe: { readonly version: string; readonly fits: boolean } | undefined
  readonly node: NodeFacts
  readonly npm: NpmFacts | undefined
  readonly native: { readonly available: true } | { readonly available: false; reason: string }
  readonly sharedMemory: SharedMemoryFacts
  /** Whether the scheduler divides CPU time among sessions first (autogroups); undefined if unsupported. */
  readonly autogroups: boolean | undefined
  /** Maximum open files of a process. */
  readonly openFiles: number | undefined
  readonly cores: CoreFacts
  readonly memory: MemoryFacts
  readonly backends: readonly BackendFacts[]
  readonly tensorflow: TensorFlowFacts
  readonly blas: BlasFacts
  readonly gpus: GpuFacts
  readonly mpi: MpiFacts
}

export interface NodeFacts extends NodeAbilities {
  /** For example `linux-x64`. */
  readonly system: string
  /** Path of the package tsx, if installed. */
  readonly tsx: string | undefined
}

export interface NpmFacts {
  readonly version: string
  /** Whether npm's configuration sets `ignore-scripts`. */
  readonly ignoresScripts: boolean
}

export interface SharedMemoryFacts {
  /** Why two processes cannot share a file in memory; undefined if they can. */
  readonly problem: string | undefined
  /** Size of /dev/shm in bytes; undefined if it is missing. */
  readonly size?: number | undefined
  readonly free?: number | undefined
}

export interface CoreFacts {
  /** The cores on which this process may run. */
  readonly allowed: number
  readonly all: number
  /** CPU limit of the container, in cores; undefined: no limit. */
  readonly quota: number | undefined
}

export interface MemoryFacts {
  /** Memory in bytes: the limit of the container, if any, else the size of the machine. */
  readonly size: number
  /** Bytes per second that one core copies, in blocks larger than the caches. */
  readonly copied: number
}

/** The result of training one step in a new process. */
export type BackendFacts = { readonly name: string } & (
  | {
      readonly works: true
      readonly version: string
      readonly device?: string | undefined
      readonly threads?: number | undefined
    }
  | { readonly works: false; readonly reason: string; readonly missing: boolean }
)

export type TensorFlowFacts =
  { readonly manifest: TensorFlowManifest | undefined } | { readonly problem: string }

/** The BLAS that the backend wasm uses. */
export interface BlasFacts {
  /** The first library whose products are right. */
  readonly library: string | null
  /** What named it or brought it. */
  readonly origin: string | null
  /** The kernels that it selected, and the variable that selects them. */
  readonly kernels: string | null
  /** Why those before it cannot be used. */
  readonly problems: readonly string[]
}

export interface GpuFacts {
  /** The lines of `nvidia-smi -L`, one for each GPU. */
  readonly nvidia: readonly string[]
  /** The lines of `nvidia-smi topo -m`. */
  readonly topology: readonly string[]
  /** Which GPUs are in use, and by what; undefined: none. */
  readonly uses: string | undefined
  /** Why CUDA_VISIBLE_DEVICES does not fit these GPUs. */
  readonly misnamed: string | undefined
  /** Why nvidia-smi fails; undefined if it works or is not installed. */
  readonly problem: string | undefined
}

export interface MpiFacts {
  /** Paths of libmpi. */
  readonly libraries: readonly string[]
  /** The first line of `mpirun --version`. */
  readonly mpirun: string | undefined
}

/** The result of a check. */
export interface Finding {
  readonly name: string
  /**
   * `note`: the default backend can train, and `advice` is optional. `problem`: the default backend
   * cannot train until the user follows `advice`.
   */
  readonly state: 'ok' | 'note' | 'problem'
  readonly found: string
  readonly advice?: string
  /** Output lines of a tool. */
  readonly details?: readonly string[]
}

export type Check = (facts: Facts) => readonly Finding[]
