import { createRequire } from 'node:module'
import { cpus, freemem, networkInterfaces, release, totalmem } from 'node:os'
import { join } from 'node:path'
import { object, parseJson, text, thisSystem } from '@tsrun/core'
import {
  linesOf,
  memoryLimit,
  readAvailable,
  readSystemFile as read,
  resolveFrom,
  runProgram,
  version,
} from '@tsrun/launcher/host'
import { isAvailable } from '@tsrun/native'
import { attempt, readCores } from './machine.ts'

/** Host facts for a bug report. Null means missing or unknown, and sizes are in bytes. */
export type HostReport = Awaited<ReturnType<typeof reportHost>>

type Environment = NodeJS.ProcessEnv

/** Milliseconds for a program to answer. */
const LIMIT = 10_000

/** Collects facts about this host. A failed probe counts as a missing fact. */
export async function reportHost(env: Environment, cwd: string, signal: AbortSignal) {
  const places = placesOf(cwd)
  const versionOf = (name: string): string | null => installedVersion(name, places)
  const cores = readCores()
  const koffi = isAvailable()
  const model = cpus()[0]?.model.trim() ?? ''
  const limit = memoryLimit() ?? Infinity
  return {
    tsrun: version,
    packages: Object.fromEntries(packageNames.map((name) => [name, versionOf(name)])),
    node: process.version,
    v8: process.versions.v8,
    tsx: versionOf('tsx'),
    typescript: versionOf('typescript'),
    system: thisSystem,
    os: /^PRETTY_NAME="?(.*?)"?$/m.exec(read('/etc/os-release') ?? '')?.[1] ?? null,
    kernel: release(),
    libc: attempt(readLibc) ?? null,
    cpu: {
      model: model === '' ? null : model,
      cores: cores.all,
      /** The number of cores on which this process may run. */
      allowed: cores.allowed,
      limit: cores.quota ?? null,
    },
    memory: {
      size: totalmem(),
      free: readAvailable() ?? freemem(),
      limit: limit < totalmem() ? limit : null,
    },
    ...(await readGpus({ env, cwd, limit: LIMIT, signal })),
    backends: backendPackages.map(([name, of]) => ({ name, package: of, version: versionOf(of) })),
    koffi: versionOf('koffi'),
    /** Why koffi does not load, or null. */
    koffiProblem: koffi.available ? null : koffi.reason,
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

/** The places to resolve packages from: the user's folder, tsrun, and the packages with a backend. */
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

const QUERY = ['--query-gpu=name,memory.total,driver_version', '--format=csv,noheader']

async function readGpus(options: Parameters<typeof runProgram>[2]) {
  const { stdout, stderr, failure } = await runProgram('nvidia-smi', QUERY, options)
  const lines = linesOf(failure === undefined ? stdout : `${stdout}\n${stderr}`)
  return {
    /** For each GPU: the name, the memory with its unit, and the driver version. */
    gpus: failure === undefined ? lines : [],
    /** Why nvidia-smi fails; null if it works or is not installed. */
    gpuProblem:
      failure === undefined || failure === 'exit code ENOENT'
        ? null
        : `nvidia-smi: ${lines[0] ?? failure}`,
  }
}

const prefixes =
  // List the TF_ prefixes: TF_ alone would also match the variables of Terraform.
  /^(TSRUN|PET|MASTER|TORCHELASTIC|OMPI_COMM_WORLD|PMIX?|MPI|JOB_COMPLETION|V[CK]_TASK|OMP|OPENBLAS|MKL|BLIS|VECLIB|CUDA|NVIDIA_VISIBLE|NCCL|UCX|TF_(NUM|FORCE|CPP|ENABLE|GPU|XLA))_|^SLURM_(JOB_ID|JOB_N|LOCALID|N|PROCID|STEP|TASKS)/
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
