import { spawnSync, type SpawnSyncReturns } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type Server } from 'node:net'
import {
  libraryPath,
  namesIn,
  readTensorFlowManifest,
  thisSystem,
  type TensorFlowManifest,
  formatBytes,
  formatRankList,
} from '@tsrun/core'
import { usableCores, readSystemFile } from './limits.ts'
import { usageError } from '../../args/readers.ts'

export type Environment = Readonly<Record<string, string | undefined>>

/** The cores and GPUs that the ranks of this host share. */
export interface Devices {
  readonly cores: number
  /** The GPUs in the form of CUDA_VISIBLE_DEVICES: indices or UUIDs. */
  readonly gpus: readonly string[]
  /** The library folders of the installed TensorFlow. */
  readonly libraryFolders: readonly string[]
}

/**
 * Finds the cores of this host, the GPUs that `env` leaves visible, and the libraries of the installed
 * TensorFlow.
 *
 * @param list - returns the GPUs; default: asks nvidia-smi
 */
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
interface GpuList {
  /** One line for each GPU and each MIG instance. */
  readonly lines: readonly string[]
  /** False if nvidia-smi is missing or does not end in time. */
  readonly answered: boolean
  /** Why nvidia-smi fails; undefined if it works or is not installed. */
  readonly problem: string | undefined
}

/** Time limit in milliseconds. A driver without persistence mode takes seconds. */
const LONGEST = 20_000

function askNvidiaSmi(env: Environment, args: readonly string[]): SpawnSyncReturns<string> {
  const options = { env, encoding: 'utf8', timeout: LONGEST, killSignal: 'SIGKILL' } as const
  return spawnSync('nvidia-smi', args, options)
}

function listGpus(env: Environment): GpuList {
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

/** A GPU or MIG instance that ranks of this host may use. */
interface HostGpu {
  /** The GPU in the form of CUDA_VISIBLE_DEVICES: an index or a UUID. */
  readonly name: string
  readonly uuid: string
  /** A description of the other users of the GPU; undefined if it is free. */
  readonly use: string | undefined
}

/** The GPUs of this host, and what uses them. */
export type HostGpus = ReturnType<typeof gpusOfHost>

/** Lists the GPUs of this host, and what uses them. Asks nvidia-smi only when needed, and only once. */
export function gpusOfHost(env: Environment) {
  const isChosen = env['CUDA_VISIBLE_DEVICES'] !== undefined
  let list: GpuList | undefined
  let all: readonly HostGpu[] | undefined
  const gpus = {
    get list(): GpuList {
      return (list ??= listGpus(env))
    },

    /** The GPUs of CUDA_VISIBLE_DEVICES; without the variable, all GPUs. */
    get all(): readonly HostGpu[] {
      return (all ??= findUses(
        findGpus(env, () => gpus.list),
        gpus.list,
        env,
      ))
    },

    /** The names of the GPUs for ranks: the user's choice, else the unused GPUs, else all GPUs. */
    get preferred(): readonly string[] {
      const free = gpus.all.filter(({ use }) => use === undefined)
      return (isChosen || free.length === 0 ? gpus.all : free).map(({ name }) => name)
    },

    /** @throws ERR_TSR_USAGE if CUDA_VISIBLE_DEVICES names a GPU that this host does not have */
    check(): void {
      // Without the variable, do not wait for nvidia-smi.
      const problem = isChosen ? visibleProblem(env, gpus.list) : undefined
      if (problem !== undefined) throw usageError(problem)
    },

    /**
     * Claims a GPU for each rank, for as long as this process lives, so that launchers that start at the
     * same time choose different ones.
     */
    async claim(ranks: number) {
      const claims: Server[] = []
      const names: string[] = []
      const busy: HostGpu[] = []
      for (const gpu of gpus.all) {
        if (names.length === ranks) break
        const claim = gpu.use === undefined ? await claimGpu(gpu.uuid) : undefined
        if (claim === undefined) busy.push({ ...gpu, use: gpu.use ?? OTHER })
        else claims.push(claim)
        if (claim !== undefined || isChosen) names.push(gpu.name)
      }
      const isShared = isChosen || names.length === 0
      const claimed = names.length === 0 ? gpus.all.map(({ name }) => name) : names
      return {
        /** The GPUs in the form of CUDA_VISIBLE_DEVICES; assigned to the ranks round-robin. */
        gpus: claimed,
        /** A warning about shared or busy GPUs; undefined if each rank has a free GPU of its own. */
        warning: warningOf(claimed, busy, isShared, ranks),
        release: () => {
          for (const claim of claims) claim.close()
        },
      }
    },
  }
  return gpus
}

function warningOf(
  gpus: readonly string[],
  busy: readonly HostGpu[],
  isShared: boolean,
  ranks: number,
): string | undefined {
  const sentences: string[] = []
  if (busy.length > 0) {
    const how = isShared
      ? `, and the ranks share ${busy.length === 1 ? 'it' : 'them'}; CUDA_VISIBLE_DEVICES chooses others`
      : `; the ranks get ${nameGpus(gpus)}`
    sentences.push(describeUse(busy) + how)
  }
  const { size } = new Set(gpus)
  if (size > 0 && ranks > size) {
    const what = size === 1 ? nameGpus(gpus) : `${size} GPUs`
    sentences.push(
      `${ranks} ranks share ${what}, so they take turns; --nproc gpu starts one rank per GPU`,
    )
  }
  return sentences.length === 0 ? undefined : sentences.join('. ')
}

/** Describes the GPUs that something uses, such as `GPU 0 is in use (pid 4711, python3, 19.5 GiB)`. */
function describeUse(gpus: readonly HostGpu[]): string {
  return gpus.map(({ name, use }) => `${nameGpus([name])} is in use (${use ?? ''})`).join(', ')
}

function nameGpus(names: readonly string[]): string {
  if (!names.every((name) => /^\d+$/.test(name))) return names.join(', ')
  const numbers = new Set(names.map(Number))
  return `${numbers.size === 1 ? 'GPU' : 'GPUs'} ${formatRankList(numbers)}`
}

/** Describes a GPU of CUDA_VISIBLE_DEVICES that this host lacks; undefined if none is known. */
function visibleProblem(env: Environment, list: GpuList): string | undefined {
  const { lines, answered, problem } = list
  if (env['CUDA_VISIBLE_DEVICES'] === undefined || !answered || problem !== undefined) {
    return undefined
  }
  // Older drivers name MIG instances by path.
  const missing = findGpus(env).find(
    (name) => /^(\d+|(GPU|MIG)-[^/]+)$/.test(name) && lineOf(name, lines) === undefined,
  )
  if (missing === undefined) return undefined
  const indices = lines.flatMap((line) => /^GPU (\d+):/.exec(line)?.[1] ?? [])
  const found = indices.length === 0 ? 'none' : nameGpus(indices)
  return `CUDA_VISIBLE_DEVICES names ${nameGpus([missing])}, but this host has ${found} (nvidia-smi -L)`
}

/** Finds the line about a GPU. The name is an index or, as in CUDA, the beginning of a UUID. */
function lineOf(name: string, lines: readonly string[]): string | undefined {
  const key = /^\d+$/.test(name) ? `GPU ${Number(name)}:` : `(UUID: ${name}`
  return lines.find((line) => line.includes(key))
}

function findUses(names: readonly string[], { lines }: GpuList, env: Environment): HostGpu[] {
  if (names.length === 0) return []
  const processes = readProcesses(env)
  const claimed = readClaims()
  return names.map((name) => {
    const uuid = /\(UUID: ([^)]+)\)/.exec(lineOf(name, lines) ?? '')?.[1] ?? name
    const uses = [...(processes.get(uuid) ?? []), ...(claimed.has(uuid) ? [OTHER] : [])]
    return { name, uuid, use: uses.length === 0 ? undefined : uses.join('; ') }
  })
}

const QUERY = [
  '--query-compute-apps=gpu_uuid,pid,process_name,used_memory',
  '--format=csv,noheader,nounits',
]

/** The processes that compute on GPUs, by UUID. */
function readProcesses(env: Environment): Map<string, string[]> {
  const { status, stdout } = askNvidiaSmi(env, QUERY)
  const uses = new Map<string, string[]>()
  for (const line of status === 0 ? linesOf(stdout) : []) {
    const [, uuid, pid, program, mebibytes] = /^(\S+), (\d+), (.*), (\d+)$/.exec(line) ?? []
    // On Windows, all programs with a window are listed, with [N/A] in place of the memory.
    if (uuid === undefined) continue
    const memory = formatBytes(Number(mebibytes) * 2 ** 20)
    const use = `pid ${pid!}, ${program!.split(/[\\/]/).at(-1)!}, ${memory}`
    uses.set(uuid, [...(uses.get(uuid) ?? []), use])
  }
  return uses
}

const OTHER = 'another tsrun has it'
/** Size of `sun_path`. Versions of Node differ in whether they pad shorter names. */
const NAME_SIZE = 108

/**
 * Claims a GPU with an abstract Unix socket. All users of the host see it, and the kernel removes it when
 * its process ends. Returns undefined if another process has claimed the GPU.
 */
async function claimGpu(uuid: string): Promise<Server | undefined> {
  const server = createServer((socket) => socket.destroy()).unref()
  if (process.platform !== 'linux') return server
  try {
    await once(server.listen(`\0tsrun-gpu-${uuid}`.padEnd(NAME_SIZE, '\0')), 'listening')
  } catch (error) {
    // Other runtimes than Node may lack abstract sockets, so ignore other errors.
    if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE') return undefined
  }
  return server
}

/** The UUIDs of the GPUs that launchers of this host have claimed. */
function readClaims(): Set<string> {
  // The kernel shows NUL as @.
  const names = (readSystemFile('/proc/net/unix') ?? '').matchAll(/ @tsrun-gpu-([^\s@]+)@*$/gm)
  return new Set(Array.from(names, ([, uuid]) => uuid!))
}
