import type { TensorFlowManifest } from '@tsrun/core'
import type { NodeAbilities } from '../job/script.ts'

/** What the doctor knows of this host; every check judges a part of it. */
export interface Facts {
  readonly node: NodeFacts
  readonly npm: NpmFacts | undefined
  readonly native: { readonly available: true } | { readonly available: false; reason: string }
  readonly sharedMemory: SharedMemoryFacts
  /** Whether the kernel shares the cores among sessions first; undefined where it cannot. */
  readonly autogroups: boolean | undefined
  /** Files that a process may have open. */
  readonly openFiles: number | undefined
  readonly cores: CoreFacts
  readonly backends: readonly BackendFacts[]
  readonly tensorflow: TensorFlowFacts
  readonly gpus: GpuFacts
  readonly mpi: MpiFacts
}

export interface NodeFacts extends NodeAbilities {
  /** As in `linux-x64`. */
  readonly system: string
  /** Where the package tsx is, if it is installed. */
  readonly tsx: string | undefined
}

export interface NpmFacts {
  readonly version: string
  /** `ignore-scripts` of its configuration. */
  readonly ignoresScripts: boolean
}

export interface SharedMemoryFacts {
  /** Why two processes cannot share a file in memory; undefined: they can. */
  readonly problem: string | undefined
  /** Bytes of /dev/shm; undefined where there is none. */
  readonly size: number | undefined
  readonly free: number | undefined
}

export interface CoreFacts {
  /** That this process may run on. */
  readonly allowed: number
  /** Of the machine. */
  readonly all: number
  /** How many a container may use at a time, in cores; undefined: no limit. */
  readonly quota: number | undefined
}

/** What came of training a step in a fresh process. */
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
  /** A line for each, as `nvidia-smi -L` prints it. */
  readonly nvidia: readonly string[]
  /** Lines of `nvidia-smi topo -m`. */
  readonly topology: readonly string[]
  /** Why nvidia-smi says nothing; undefined where there is no nvidia-smi, or it works. */
  readonly problem: string | undefined
}

export interface MpiFacts {
  /** Files of libmpi. */
  readonly libraries: readonly string[]
  /** First line of `mpirun --version`. */
  readonly mpirun: string | undefined
}

/** What a check found. */
export interface Finding {
  readonly name: string
  /**
   * `ok`; `note`: the default trains without it, `advice` says how to get more; `problem`: the default
   * does not train until `advice` is followed.
   */
  readonly state: 'ok' | 'note' | 'problem'
  /** What is there, in a few words. */
  readonly found: string
  /** What to do. */
  readonly advice?: string
  /** More lines, as a tool printed them. */
  readonly details?: readonly string[]
}

export type Check = (facts: Facts) => readonly Finding[]
