import type { TensorFlowManifest } from '@tsrun/core'
import type { NodeAbilities } from '../job/script.ts'

/** The facts about this host. Each check judges some of them. */
export interface Facts {
  /** The optional package `@tsrun/observe`, and whether it has tsrun's version. */
  readonly observe: { readonly version: string; readonly fits: boolean } | undefined
  readonly node: NodeFacts
  readonly npm: NpmFacts | undefined
  readonly native: { readonly available: true } | { readonly available: false; reason: string }
  readonly sharedMemory: SharedMemoryFacts
  /** Whether the kernel divides the CPU time among sessions first; undefined where it cannot. */
  readonly autogroups: boolean | undefined
  /** The number of files that a process may have open. */
  readonly openFiles: number | undefined
  readonly cores: CoreFacts
  readonly memory: MemoryFacts
  readonly backends: readonly BackendFacts[]
  readonly tensorflow: TensorFlowFacts
  readonly gpus: GpuFacts
  readonly mpi: MpiFacts
}

export interface NodeFacts extends NodeAbilities {
  /** For example `linux-x64`. */
  readonly system: string
  /** The path of the package tsx, if it is installed. */
  readonly tsx: string | undefined
}

export interface NpmFacts {
  readonly version: string
  /** `ignore-scripts` in its configuration. */
  readonly ignoresScripts: boolean
}

export interface SharedMemoryFacts {
  /** Why two processes cannot share a file in memory; undefined if they can. */
  readonly problem: string | undefined
  /** The size of /dev/shm in bytes; undefined where there is none. */
  readonly size: number | undefined
  readonly free: number | undefined
}

export interface CoreFacts {
  /** The cores on which this process may run. */
  readonly allowed: number
  /** All cores of the machine. */
  readonly all: number
  /** The CPU time that the container may use, in cores; undefined: no limit. */
  readonly quota: number | undefined
}

export interface MemoryFacts {
  /** Bytes of the machine, or of the container if it has a limit. */
  readonly size: number
  /** The bytes per second that one core copies, in blocks that are larger than the caches. */
  readonly copied: number
}

/** The result of training a step in a new process. */
export type BackendFacts = { readonly name: string } & (
  | {
      readonly works: true
      readonly version: string
      readonly device: string | undefined
      readonly threads: number | undefined
    }
  | { readonly works: false; readonly reason: string; readonly missing: boolean }
)

export type TensorFlowFacts =
  { readonly manifest: TensorFlowManifest | undefined } | { readonly problem: string }

export interface GpuFacts {
  /** The lines of `nvidia-smi -L`, one for each GPU. */
  readonly nvidia: readonly string[]
  /** The lines of `nvidia-smi topo -m`. */
  readonly topology: readonly string[]
  /** Why nvidia-smi fails; undefined where it works, or is not installed. */
  readonly problem: string | undefined
}

export interface MpiFacts {
  /** The files of libmpi. */
  readonly libraries: readonly string[]
  /** The first line of `mpirun --version`. */
  readonly mpirun: string | undefined
}

/** The result of a check. */
export interface Finding {
  readonly name: string
  /**
   * `ok`; `note`: the default backend trains without it, and `advice` says how to get it; `problem`: the
   * default backend cannot train until `advice` is followed.
   */
  readonly state: 'ok' | 'note' | 'problem'
  /** What was found, in a few words. */
  readonly found: string
  /** What to do. */
  readonly advice?: string
  /** Lines that a tool has printed. */
  readonly details?: readonly string[]
}

export type Check = (facts: Facts) => readonly Finding[]
