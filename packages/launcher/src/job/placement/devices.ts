import { spawnSync, type SpawnSyncReturns } from 'node:child_process'
import {
  libraryPath,
  namesIn,
  readTensorFlowManifest,
  thisSystem,
  type TensorFlowManifest,
} from '@tsrun/core'
import { usableCores } from './limits.ts'

export type Environment = Readonly<Record<string, string | undefined>>

/** The cores and GPUs that the ranks of this host share. */
export interface Devices {
  readonly cores: number
  /** In the form of CUDA_VISIBLE_DEVICES: indices or UUIDs. */
  readonly gpus: readonly string[]
  /** The library folders of the installed TensorFlow. */
  readonly libraryFolders: readonly string[]
}

/** @param list - lists the GPUs, for a caller that keeps the list */
export function findDevices(env: Environment, list?: () => GpuList): Devices {
  const manifest = readManifest(env)
  return {
    cores: usableCores(),
    gpus: findGpus(env, list),
    libraryFolders: manifest?.system === thisSystem ? manifest.libraryFolders : [],
  }
}

/**
 * The variables that limit a rank to its share: one GPU, and as many threads as there are cores per local
 * rank. GPUs are assigned round-robin. TensorFlow allocates GPU memory on demand, because other ranks of
 * this job or of another one may use the same GPU. Variables in `env` take precedence.
 */
export function deviceEnvironment(
  { cores, gpus, libraryFolders }: Devices,
  env: Environment,
  localRank: number,
  localWorldSize: number,
): Record<string, string> {
  const threads = String(Math.max(1, Math.floor(cores / localWorldSize)))
  const given: Record<string, string> = {
    OMP_NUM_THREADS: threads,
    TF_NUM_INTRAOP_THREADS: threads,
    TF_NUM_INTEROP_THREADS: threads,
    ...(gpus.length > 0
      ? // PCI_BUS_ID is the order of nvidia-smi.
        { CUDA_DEVICE_ORDER: 'PCI_BUS_ID', TF_FORCE_GPU_ALLOW_GROWTH: 'true' }
      : {}),
  }
  const unset = Object.entries(given).filter(([name]) => (env[name] ?? '') === '')
  return {
    ...Object.fromEntries(unset),
    ...(gpus.length > 0 ? { CUDA_VISIBLE_DEVICES: gpus[localRank % gpus.length]! } : {}),
    ...(libraryFolders.length > 0 ? { LD_LIBRARY_PATH: libraryPath({ libraryFolders }, env) } : {}),
  }
}

/** Whether ranks compute on GPUs: TensorFlow for GPUs is installed, and no other backend is selected. */
export function usesGpus(env: Environment): boolean {
  if ((env['TSRUN_BACKEND'] ?? 'tensorflow') !== 'tensorflow') return false
  return readManifest(env)?.package === '@tensorflow/tfjs-node-gpu'
}

/** The GPUs of CUDA_VISIBLE_DEVICES, or all GPUs of this host, in the form of that variable. */
export function findGpus(env: Environment, list = () => listGpus(env)): string[] {
  const visible = env['CUDA_VISIBLE_DEVICES']
  if (visible !== undefined) {
    const named = visible.split(',').map((name) => name.trim())
    return named.filter((name) => name !== '' && name !== '-1')
  }
  const { lines, answered } = list()
  if (answered) return parseGpuList(lines.join('\n'))
  return namesIn('/proc/driver/nvidia/gpus').map((_, index) => String(index))
}

/** The indices of the GPUs, or the UUIDs of MIG instances if there are any. */
function parseGpuList(text: string): string[] {
  const parts = Array.from(text.matchAll(/\(UUID: (MIG-[^)]+)\)/g), ([, uuid]) => uuid!)
  if (parts.length > 0) return parts
  return Array.from(text.matchAll(/^GPU (\d+): /gm), ([, index]) => index!)
}

function readManifest(env: Environment): TensorFlowManifest | undefined {
  try {
    return readTensorFlowManifest(env)
  } catch {
    // The ranks that load the backend report the problem.
    return undefined
  }
}

/** The output of `nvidia-smi -L`. */
export interface GpuList {
  /** One line for each GPU and each MIG instance. */
  readonly lines: readonly string[]
  /** False if nvidia-smi is missing or does not end in time. */
  readonly answered: boolean
  /** Why nvidia-smi fails; undefined if it works or is not installed. */
  readonly problem: string | undefined
}

/** Time limit in milliseconds. A driver without persistence mode takes seconds. */
const LONGEST = 20_000

export function askNvidiaSmi(env: Environment, args: readonly string[]): SpawnSyncReturns<string> {
  const options = { env, encoding: 'utf8', timeout: LONGEST, killSignal: 'SIGKILL' } as const
  return spawnSync('nvidia-smi', args, options)
}

export function listGpus(env: Environment): GpuList {
  const { error, status, stdout, stderr } = askNvidiaSmi(env, ['-L'])
  if (error !== undefined) {
    const { code } = error as NodeJS.ErrnoException
    const says = code === 'ETIMEDOUT' ? `no answer within ${LONGEST / 1000} s` : error.message
    const problem = code === 'ENOENT' ? undefined : `nvidia-smi: ${says}`
    return { lines: [], answered: false, problem }
  }
  if (status === 0) return { lines: linesOf(stdout), answered: true, problem: undefined }
  const [says = `exit code ${status}`] = linesOf(`${stdout}\n${stderr}`)
  return { lines: [], answered: true, problem: `nvidia-smi: ${says}` }
}

/** The lines that are not empty. */
export function linesOf(text: string): string[] {
  return text
    .split('\n')
    .map((line) => line.trimEnd())
    .filter((line) => line !== '')
}
