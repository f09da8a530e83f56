import { closeSync, readFileSync, statfsSync } from 'node:fs'
import { availableParallelism, cpus, devNull, totalmem } from 'node:os'
import { blasLibraries } from '@tsrun/core'
import { createSharedFile, isAvailable } from '@tsrun/native'
import {
  cpuQuota,
  type HostGpus,
  linesOf,
  memoryLimit,
  runProgram,
  usableCores,
} from '@tsrun/launcher/host'
import { proveBlas } from '../setup/blas.ts'

/** Tests whether a child process can write into a memory-backed file of this process. */
export async function trySharedMemory() {
  return {
    /** Why two processes cannot share a file in memory; undefined if they can. */
    problem: await sharingProblem(),
    /** Bytes of /dev/shm; undefined if it is missing. */
    ...attempt(() => {
      const { blocks, bavail, bsize } = statfsSync('/dev/shm')
      return { size: blocks * bsize, free: bavail * bsize }
    }),
  }
}

async function sharingProblem(): Promise<string | undefined> {
  const native = isAvailable()
  if (!native.available) return `not tried: ${native.reason}`
  let fd: number | undefined
  try {
    fd = createSharedFile('tsrun-doctor', 4096)
    const path = `/proc/${process.pid}/fd/${fd}`
    const program = `(${writeHere.toString()})()`
    const { failure, stderr } = await runProgram(process.execPath, ['-e', program, path])
    if (failure !== undefined) {
      const [error = 'it failed'] = /^\w*Error: .*$/m.exec(stderr) ?? []
      return `another process cannot open ${path}: ${error}`
    }
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

export function readCores() {
  return {
    /** The cores on which this process may run. */
    allowed: availableParallelism(),
    all: cpus().length,
    /** CPU limit of the container, in cores; undefined: no limit. */
    quota: cpuQuota(),
    /** The number of ranks that `--nproc auto` starts without GPUs. */
    usable: usableCores(),
  }
}

const BLOCK = 64 * 2 ** 20
const COPIES = 5

/** Times several copies, for about a tenth of a second, and reports the fastest copy. */
export function measureMemory() {
  const [from, to] = [Buffer.alloc(BLOCK, 1), Buffer.alloc(BLOCK, 2)]
  const seconds = Array.from({ length: COPIES }, () => {
    const start = performance.now()
    from.copy(to)
    return (performance.now() - start) / 1000
  })
  return {
    /** Memory in bytes: the limit of the container, if any, else the size of the machine. */
    size: Math.min(memoryLimit() ?? Infinity, totalmem()),
    /** Bytes per second that one core copies, in blocks larger than the caches. */
    copied: BLOCK / Math.min(...seconds),
  }
}

/** Returns the result of `probe`, or undefined if `probe` throws. */
export function attempt<T>(probe: () => T): T | undefined {
  try {
    return probe()
  } catch {
    return undefined
  }
}

export async function readGpus(
  { lines: nvidia, problem }: HostGpus['list'],
  env: NodeJS.ProcessEnv,
) {
  return {
    /** The lines of `nvidia-smi -L`, one for each GPU. */
    nvidia,
    /** The lines of `nvidia-smi topo -m`. */
    topology:
      nvidia.length > 1
        ? linesOf((await runProgram('nvidia-smi', ['topo', '-m'], { env })).stdout)
        : [],
    /** Why nvidia-smi fails; undefined if it works or is not installed. */
    problem,
  }
}

/** Finds the BLAS that the backend wasm uses: tests each library, each in a new process. */
export async function findBlas(env: NodeJS.ProcessEnv, signal: AbortSignal) {
  const type = env['OPENBLAS_CORETYPE']
  const problems: string[] = []
  const context = { env, signal, title: 'OpenBLAS', log: devNull, say: () => undefined } as const
  for (const [library, origin] of blasLibraries((problem) => problems.push(problem), env)) {
    const proof = await proveBlas(context, library).catch(String)
    if (typeof proof !== 'string') {
      const { kernels = 'unknown' } = proof
      const chosen = type === undefined ? '' : ` (OPENBLAS_CORETYPE=${type})`
      return {
        /** The first library that computes correct matrix products. */
        library,
        /** The variable that names the library, or the package that contains it. */
        origin,
        /** The kernels that the library selected, and OPENBLAS_CORETYPE if it is set. */
        kernels: `${kernels}${chosen}`,
        /** Why each library that was tested before `library` cannot be used. */
        problems,
      }
    }
    problems.push(`${library}: ${proof}`)
  }
  return { library: null, origin: null, kernels: null, problems }
}
