import { existsSync } from 'node:fs'
import { createRequire } from 'node:module'
import { cpus, freemem, networkInterfaces, release, totalmem } from 'node:os'
import { join } from 'node:path'
import { namesIn, object, parseJson, text, thisSystem } from '@tsrun/core'
import { isAvailable } from '@tsrun/native'
import {
  linesOf,
  memoryLimit,
  readAvailable,
  readSystemFile as read,
  resolveFrom,
  runProgram,
  softLimit,
  version,
} from '@tsrun/launcher/host'
import { readTensorFlow } from './gather.ts'
import { attempt, findBlas, findMpi, readCores, sizeOfShm } from './machine.ts'

/** Host facts for a bug report. Null means missing or unknown, and sizes are in bytes. */
export type HostReport = Awaited<ReturnType<typeof reportHost>>

type Environment = NodeJS.ProcessEnv

/** Milliseconds for a program to answer. */
const LIMIT = 10_000

/** Collects facts about this host. A failed probe counts as a missing fact. */
export async function reportHost(env: Environment, cwd: string, signal: AbortSignal) {
  const options = { env, cwd, limit: LIMIT, signal }
  const [npm, gpus, mpi, blas] = await Promise.all([
    runProgram('npm', ['--version'], options),
    readGpus(options),
    findMpi(env),
    findBlas(env, signal),
  ])
  const places = placesOf(cwd)
  const versionOf = (name: string): string | null => installedVersion(name, places)
  const koffi = isAvailable()
  const cores = readCores()
  const model = cpus()[0]?.model.trim() ?? ''
  const limit = memoryLimit() ?? Infinity
  return {
    tsrun: version,
    packages: Object.fromEntries(packageNames.map((name) => [name, versionOf(name)])),
    node: process.version,
    v8: process.versions.v8,
    npm: npm.failure === undefined ? (linesOf(npm.stdout)[0] ?? null) : null,
    tsx: versionOf('tsx'),
    typescript: versionOf('typescript'),
    system: thisSystem,
    os: /^PRETTY_NAME="?(.*?)"?$/m.exec(read('/etc/os-release') ?? '')?.[1] ?? null,
    kernel: release(),
    libc: attempt(readLibc) ?? null,
    container: containerOf(env),
    cpu: {
      model: model === '' ? null : model,
      cores: cores.all,
      /** The number of cores for this process. */
      allowed: cores.allowed,
      /** The limit of the cgroup in cores. */
      limit: cores.quota ?? null,
    },
    memory: {
      size: totalmem(),
      free: readAvailable() ?? freemem(),
      /** The limit of the cgroup in bytes. */
      limit: limit < totalmem() ? limit : null,
    },
    shm: sizeOfShm() ?? null,
    openFiles: softLimit('Max open files') ?? null,
    numaNodes: readNumaNodes(),
    ...gpus,
    backends: backendPackages.map(([name, of]) => ({ name, package: of, version: versionOf(of) })),
    tensorflow: reportTensorFlow(env),
    blas,
    koffi: {
      version: versionOf('koffi'),
      loads: koffi.available,
      problem: koffi.available ? null : koffi.reason,
    },
    mpi:
      mpi.libraries.length > 0 || mpi.mpirun !== undefined
        ? { ...mpi, mpirun: mpi.mpirun ?? null }
        : null,
    interfaces: Object.entries(attempt(networkInterfaces) ?? {}).map(([name, of = []]) => ({
      name,
      addresses: of.map(({ cidr, address }) => cidr ?? address),
    })),
    variables: readVariables(env),
  }
}

const packageNames = [
  'core',
  'native',
  'store',
  'distributed',
  'mpi',
  'training',
  'data',
  'tensorflow',
  'layers',
  'models',
  'observe',
  'launcher',
  'doctor',
].map((name) => `@tsrun/${name}`)

const backendPackages = [
  ['wasm', '@tensorflow/tfjs-backend-wasm'],
  ['cpu', '@tensorflow/tfjs-backend-cpu'],
  ['tensorflow', '@tensorflow/tfjs-node'],
  ['tensorflow', '@tensorflow/tfjs-node-gpu'],
  ['webgpu', '@tensorflow/tfjs-backend-webgpu'],
] as const

/**
 * Folders to resolve packages from: the user's, tsrun's, and those of packages that depend on a
 * backend.
 */
function placesOf(cwd: string): string[] {
  const own = [join(cwd, 'any.js'), import.meta.url]
  const others = ['@tsrun/training', '@tsrun/native'].flatMap(
    (name) => resolveFrom(own, name) ?? [],
  )
  return [...own, ...others]
}

/** Reads package.json by path, because some packages do not export it. */
function installedVersion(name: string, places: readonly string[]): string | null {
  for (const place of places) {
    for (const folder of attempt(() => createRequire(place).resolve.paths(name)) ?? []) {
      const found = parseJson(
        read(join(folder, name, 'package.json')) ?? '',
        object({ version: text }),
      )
      if (found !== undefined) return found.version
    }
  }
  return null
}

function readLibc(): string | undefined {
  // Exclude the network, because the report would resolve the host name of every connection.
  Object.assign(process.report, { excludeNetwork: true })
  const report = process.report.getReport() as {
    header?: { glibcVersionRuntime?: string }
    sharedObjects?: string[]
  }
  const glibc = report.header?.glibcVersionRuntime
  if (glibc !== undefined) return `glibc ${glibc}`
  return report.sharedObjects?.some((path) => path.includes('ld-musl')) === true
    ? 'musl'
    : undefined
}

/** The container runtime. */
function containerOf(env: Environment): string | null {
  if (env['KUBERNETES_SERVICE_HOST'] !== undefined) return 'kubernetes'
  if (existsSync('/.dockerenv')) return 'docker'
  if (existsSync('/run/.containerenv')) return 'podman'
  return null
}

/** The cores of each NUMA node, for example `0-7`. */
function readNumaNodes(): string[] {
  const folder = '/sys/devices/system/node'
  return namesIn(folder)
    .filter((name) => /^node\d+$/.test(name))
    .sort((a, b) => Number(a.slice(4)) - Number(b.slice(4)))
    .map((name) => read(join(folder, name, 'cpulist')) ?? '')
}

const QUERY = ['--query-gpu=name,memory.total,driver_version', '--format=csv,noheader']

async function readGpus(options: Parameters<typeof runProgram>[2]) {
  const { stdout, stderr, failure } = await runProgram('nvidia-smi', QUERY, options)
  const lines = linesOf(failure === undefined ? stdout : `${stdout}\n${stderr}`)
  return {
    /** `memory` includes the unit. */
    gpus:
      failure === undefined
        ? lines.map((line) => {
            const [name = line, memory = null, driver = null] = line.split(', ')
            return { name, memory, driver }
          })
        : [],
    /** Why nvidia-smi fails; null if it works or is not installed. */
    gpuProblem:
      failure === undefined || failure === 'exit code ENOENT'
        ? null
        : `nvidia-smi: ${lines[0] ?? failure}`,
  }
}

/** The installation of `tsrun setup tensorflow`. */
function reportTensorFlow(env: Environment) {
  const found = readTensorFlow(env)
  if (found.problem !== undefined) return { problem: found.problem }
  if (found.manifest === undefined) return null
  const { tensorflowVersion: version, package: name, packageVersion, devices } = found.manifest
  return { version, package: name, packageVersion, devices }
}

const prefixes =
  // A plain TF_ would also match the variables of Terraform.
  /^(TSRUN|PET|MASTER|TORCHELASTIC|OMPI_COMM_WORLD|PMI|OMP|OPENBLAS|MKL|BLIS|VECLIB|CUDA|NCCL|TF_(NUM|FORCE|CPP|ENABLE|GPU|XLA))_/
const names = new Set([
  'RANK',
  'WORLD_SIZE',
  'LOCAL_RANK',
  'LOCAL_WORLD_SIZE',
  'NODE_RANK',
  'GROUP_RANK',
  'ROLE_NAME',
  'ROLE_RANK',
  'ROLE_WORLD_SIZE',
  'PMIX_RANK',
  'PMIX_NAMESPACE',
  'MPI_LOCALRANKID',
  'MPI_LOCALNRANKS',
  'UCX_MEM_EVENTS',
  'SLURM_JOB_ID',
  'SLURM_STEP_ID',
  'SLURM_STEPID',
  'SLURM_NODEID',
  'SLURM_PROCID',
  'SLURM_LOCALID',
  'SLURM_NTASKS',
  'SLURM_STEP_NUM_TASKS',
  'SLURM_TASKS_PER_NODE',
  'SLURM_STEP_TASKS_PER_NODE',
  'SLURM_STEP_NUM_NODES',
  'SLURM_NNODES',
  'SLURM_JOB_NUM_NODES',
  'SLURM_STEP_NODELIST',
  'SLURM_JOB_NODELIST',
  'JOB_COMPLETION_INDEX',
  'VC_TASK_INDEX',
  'VK_TASK_INDEX',
  'NVIDIA_VISIBLE_DEVICES',
  'NODE_OPTIONS',
  'NODE_PATH',
  'TSX_TSCONFIG_PATH',
  'UV_THREADPOOL_SIZE',
  'CXX',
  'LD_LIBRARY_PATH',
  'LD_PRELOAD',
  'XDG_CACHE_HOME',
  'NO_COLOR',
  'FORCE_COLOR',
])
/** A variable that ends with _FILE holds a path, which is not secret. */
const secret = /(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|KEY)(?!_FILE)/i

/** Reads the variables that affect tsrun, and hides the values of secrets. */
function readVariables(env: Environment): Record<string, string> {
  const entries = Object.entries(env).filter(([name]) => prefixes.test(name) || names.has(name))
  return Object.fromEntries(
    entries
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, value = '']) => [name, secret.test(name) && value !== '' ? 'set' : hide(value)]),
  )
}

/** Hides secrets in values such as `user:password@host` and `token=…`. */
function hide(value: string): string {
  return value
    .replaceAll(/(:\/\/[^\s/:@]*):[^\s/@]*@/g, '$1:…@')
    .replaceAll(/((?:token|secret|passw(?:or)?d|credentials?|key)\w*=)[^\s,;]+/gi, '$1…')
}
