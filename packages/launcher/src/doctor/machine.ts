import { execFile, type ExecFileException } from 'node:child_process'
import { closeSync, existsSync, readFileSync, statfsSync } from 'node:fs'
import { availableParallelism, cpus, devNull, totalmem } from 'node:os'
import { join } from 'node:path'
import { anything, blasLibraries, namesIn, parseJson, record } from '@tsrun/core'
import { createSharedFile, isAvailable } from '@tsrun/native'
import { linesOf } from '../job/placement/devices.ts'
import { describeUse, visibleProblem, type HostGpus } from '../job/placement/gpus.ts'
import { cpuQuota, readSystemFile as read, softLimit } from '../job/placement/limits.ts'
import { proveBlas } from '../setup/blas.ts'
import type {
  BlasFacts,
  CoreFacts,
  GpuFacts,
  MemoryFacts,
  MpiFacts,
  NpmFacts,
  SharedMemoryFacts,
} from './facts.ts'

export interface RunResult {
  readonly stdout: string
  readonly stderr: string
  /** Why the program failed; undefined for exit code 0. */
  readonly failure: string | undefined
}

export interface RunOptions {
  readonly cwd?: string
  readonly env?: NodeJS.ProcessEnv
  /** Milliseconds; default 20 s. */
  readonly limit?: number
  readonly signal?: AbortSignal
}

/** Runs a program with a time limit. Does not throw if the program cannot start. */
export function run(
  program: string,
  args: readonly string[],
  options: RunOptions = {},
): Promise<RunResult> {
  const { limit = 20_000, ...rest } = options
  return new Promise((resolve) => {
    const end = (error: ExecFileException | null, stdout = '', stderr = ''): void => {
      const failure =
        error === null
          ? undefined
          : error.killed === true
            ? `no answer within ${limit / 1000} s`
            : typeof error.signal === 'string'
              ? `ended by ${error.signal}`
              : `exit code ${String(error.code)}`
      resolve({ stdout, stderr, failure })
    }
    try {
      execFile(program, args, { ...rest, timeout: limit, killSignal: 'SIGKILL' }, end)
    } catch (error) {
      end(error as Error)
    }
  })
}

export async function readNpm(cwd: string): Promise<NpmFacts | undefined> {
  const { stdout, failure } = await run('npm', ['config', 'list', '--json'], { cwd })
  if (failure !== undefined) return undefined
  const config = parseJson(stdout, record(anything()))
  // Not `user-agent`, whose version is the placeholder {npm-version} in some versions of npm.
  const version = config?.['npm-version']
  if (typeof version !== 'string') return undefined
  return { version, ignoresScripts: config!['ignore-scripts'] === true }
}

/** Tests whether a child process can write into a memory-backed file of this process. */
export async function trySharedMemory(): Promise<SharedMemoryFacts> {
  return { problem: await sharingProblem(), ...sizeOfShm() }
}

async function sharingProblem(): Promise<string | undefined> {
  const native = isAvailable()
  if (!native.available) return `not tried: ${native.reason}`
  let fd: number | undefined
  try {
    fd = createSharedFile('tsrun-doctor', 4096)
    const path = `/proc/${process.pid}/fd/${fd}`
    const program = `(${writeHere.toString()})()`
    const { failure, stderr } = await run(process.execPath, ['-e', program, path])
    if (failure !== undefined) return `another process cannot open ${path}: ${firstError(stderr)}`
    return readFileSync(path, 'latin1').startsWith('here') ? undefined : `${path} is not shared`
  } catch (error) {
    return (error as Error).message
  } finally {
    if (fd !== undefined) closeSync(fd)
  }
}

/** A child process receives the source of this function and runs it. */
const writeHere = (): void => {
  process.getBuiltinModule('node:fs').writeFileSync(process.argv[1]!, 'here', { flag: 'r+' })
}

function firstError(stderr: string): string {
  return /^\w*Error: .*$/m.exec(stderr)?.[0] ?? 'it failed'
}

/** Bytes of /dev/shm; undefined if it is missing. */
export function sizeOfShm(): { readonly size: number; readonly free: number } | undefined {
  return attempt(() => {
    const { blocks, bavail, bsize } = statfsSync('/dev/shm')
    return { size: blocks * bsize, free: bavail * bsize }
  })
}

export function readAutogroups(): boolean | undefined {
  const text = read('/proc/sys/kernel/sched_autogroup_enabled')
  return text === undefined ? undefined : text.trim() === '1'
}

/** The limit on open files, which Node raises to the maximum and ranks inherit. */
export function readOpenFiles(): number | undefined {
  return softLimit('Max open files')
}

export function readCores(): CoreFacts {
  return { allowed: availableParallelism(), all: cpus().length, quota: cpuQuota() }
}

const BLOCK = 64 * 2 ** 20
const COPIES = 5

/** Times several copies, for about a tenth of a second, and reports the fastest copy. */
export function measureMemory(): MemoryFacts {
  const [from, to] = [Buffer.alloc(BLOCK, 1), Buffer.alloc(BLOCK, 2)]
  const seconds = Array.from({ length: COPIES }, () => {
    const start = performance.now()
    from.copy(to)
    return (performance.now() - start) / 1000
  })
  const limit = process.constrainedMemory()
  const size = limit > 0 && limit < totalmem() ? limit : totalmem()
  return { size, copied: BLOCK / Math.min(...seconds) }
}

/** Returns the result of `probe`, or undefined if `probe` throws. */
export function attempt<T>(probe: () => T): T | undefined {
  try {
    return probe()
  } catch {
    return undefined
  }
}

export async function readGpus(gpus: HostGpus, env: NodeJS.ProcessEnv): Promise<GpuFacts> {
  const { lines: nvidia, problem } = gpus.list
  const topology =
    nvidia.length > 1 ? linesOf((await run('nvidia-smi', ['topo', '-m'], { env })).stdout) : []
  const used = gpus.all.filter(({ use }) => use !== undefined)
  const uses = used.length === 0 ? undefined : describeUse(used)
  return { nvidia, topology, problem, uses, misnamed: visibleProblem(env, gpus.list) }
}

/** Finds the BLAS that the backend wasm uses: tests each library, each in a new process. */
export async function findBlas(env: NodeJS.ProcessEnv, signal: AbortSignal): Promise<BlasFacts> {
  const type = env['OPENBLAS_CORETYPE']
  const problems: string[] = []
  const context = { env, signal, title: 'OpenBLAS', log: devNull, say: () => undefined } as const
  for (const [library, origin] of blasLibraries((problem) => problems.push(problem), env)) {
    const proof = await proveBlas(context, library).catch(String)
    if (typeof proof !== 'string') {
      const { kernels = 'unknown' } = proof
      const chosen = type === undefined ? '' : ` (OPENBLAS_CORETYPE=${type})`
      return { library, origin, kernels: `${kernels}${chosen}`, problems }
    }
    problems.push(`${library}: ${proof}`)
  }
  return { library: null, origin: null, kernels: null, problems }
}

const mpiNames = ['libmpi.so.40', 'libmpi.so.12', 'libmpich.so.12', 'libmpi.so']

/** Finds MPI libraries as the dynamic linker would, without loading them. */
export async function findMpi(env: NodeJS.ProcessEnv): Promise<MpiFacts> {
  const [version, cache] = await Promise.all([
    run('mpirun', ['--version'], { env }),
    run('ldconfig', ['-p'], { env: { ...env, PATH: `${env['PATH'] ?? ''}:/sbin:/usr/sbin` } }),
  ])
  const cached = cache.stdout.matchAll(/^\s+(\S+) \(.*\) => (\S+)$/gm)
  const named = env['TSRUN_LIBMPI'] ?? ''
  const libraries = [
    ...(named === '' ? [] : [named]),
    ...(env['LD_LIBRARY_PATH'] ?? '').split(':').filter(Boolean).flatMap(mpiIn),
    ...Array.from(cached, ([, name, path]) => (mpiNames.includes(name!) ? path! : '')),
  ].filter((path) => path !== '' && existsSync(path))
  return {
    libraries: [...new Set(libraries)],
    mpirun: version.failure === undefined ? linesOf(version.stdout)[0] : undefined,
  }
}

function mpiIn(folder: string): string[] {
  return namesIn(folder)
    .filter((name) => mpiNames.includes(name))
    .map((name) => join(folder, name))
}
