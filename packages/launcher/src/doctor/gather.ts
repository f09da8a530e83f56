import { closeSync, readFileSync, statfsSync, existsSync, readdirSync } from 'node:fs'
import { availableParallelism, cpus } from 'node:os'
import { join } from 'node:path'
import { readTensorFlowManifest } from '@tsrun/core'
import { isAvailable, createSharedFile } from '@tsrun/native'
import { findDevices, listGpus, linesOf, type GpuList } from '../job/devices.ts'
import { nodeAbilities } from '../job/script.ts'
import { probeBackends } from './backends.ts'
import { resolveFrom, run } from './programs.ts'
import type {
  Facts,
  TensorFlowFacts,
  NodeFacts,
  NpmFacts,
  CoreFacts,
  SharedMemoryFacts,
  GpuFacts,
  MpiFacts,
} from './facts.ts'

/**
 * Looks at this host; processes that do not answer are given up.
 *
 * @param signal - ends the slow part of it
 */
export async function gatherFacts(
  env: NodeJS.ProcessEnv,
  cwd: string,
  signal: AbortSignal,
): Promise<Facts> {
  const tensorflow = readTensorFlow(env)
  const hasTensorFlow = 'manifest' in tensorflow && tensorflow.manifest !== undefined
  const list = listGpus(env)
  const [npm, gpus, mpi] = await Promise.all([readNpm(cwd), readGpus(list, env), findMpi(env)])
  return {
    node: readNode(env, cwd),
    npm,
    native: isAvailable(),
    sharedMemory: await trySharedMemory(),
    autogroups: readAutogroups(),
    openFiles: readOpenFiles(),
    cores: readCores(),
    backends: await probeBackends(env, cwd, {
      hasTensorFlow,
      devices: findDevices(env, list),
      signal,
    }),
    tensorflow,
    gpus,
    mpi,
  }
}

function readTensorFlow(env: NodeJS.ProcessEnv): TensorFlowFacts {
  try {
    return { manifest: readTensorFlowManifest(env) }
  } catch (error) {
    return { problem: (error as Error).message }
  }
}

function readNode(env: NodeJS.ProcessEnv, cwd: string): NodeFacts {
  return {
    ...nodeAbilities(env),
    system: `${process.platform}-${process.arch}`,
    tsx: resolveFrom([join(cwd, 'any.js'), import.meta.url], 'tsx'),
  }
}

async function readNpm(cwd: string): Promise<NpmFacts | undefined> {
  const { stdout, failure } = await run('npm', ['config', 'list', '--json'], { cwd })
  if (failure !== undefined) return undefined
  try {
    const config = JSON.parse(stdout) as Record<string, unknown>
    const version = /npm\/(\S+)/.exec(String(config['user-agent']))?.[1]
    if (version === undefined) return undefined
    return { version, ignoresScripts: config['ignore-scripts'] === true }
  } catch {
    return undefined
  }
}

/** Has another process write into a file of ours that exists in memory only. */
async function trySharedMemory(): Promise<SharedMemoryFacts> {
  return { problem: await sharingProblem(), ...sizeOfShm() }
}

async function sharingProblem(): Promise<string | undefined> {
  const native = isAvailable()
  if (!native.available) return `not tried: ${native.reason}`
  let fd: number | undefined
  try {
    fd = createSharedFile('tsrun-doctor', 4096)
    const path = `/proc/${process.pid}/fd/${fd}`
    const script = `require('node:fs').writeFileSync(process.argv[1], 'here', { flag: 'r+' })`
    const { failure, stderr } = await run(process.execPath, ['-e', script, path])
    if (failure !== undefined) return `another process cannot open ${path}: ${firstError(stderr)}`
    return readFileSync(path, 'latin1').startsWith('here') ? undefined : `${path} is not shared`
  } catch (error) {
    return (error as Error).message
  } finally {
    if (fd !== undefined) closeSync(fd)
  }
}

function firstError(stderr: string): string {
  return /^\w*Error: .*$/m.exec(stderr)?.[0] ?? 'it failed'
}

function sizeOfShm(): Pick<SharedMemoryFacts, 'size' | 'free'> {
  try {
    const { blocks, bavail, bsize } = statfsSync('/dev/shm')
    return { size: blocks * bsize, free: bavail * bsize }
  } catch {
    return { size: undefined, free: undefined }
  }
}

function readAutogroups(): boolean | undefined {
  const text = read('/proc/sys/kernel/sched_autogroup_enabled')
  return text === undefined ? undefined : text.trim() === '1'
}

/** The limit of this process, which Node has raised as far as it may; ranks have the same. */
function readOpenFiles(): number | undefined {
  const soft = /^Max open files\s+(\S+)/m.exec(read('/proc/self/limits') ?? '')?.[1]
  return soft === undefined ? undefined : soft === 'unlimited' ? Infinity : Number(soft)
}

function readCores(): CoreFacts {
  // cgroup v2: time in microseconds, and the period in which it may be used
  const [time, period] = (read('/sys/fs/cgroup/cpu.max') ?? 'max').trim().split(' ').map(Number)
  const quota = (time ?? NaN) / (period ?? NaN)
  return {
    allowed: availableParallelism(),
    all: cpus().length,
    quota: Number.isFinite(quota) ? quota : undefined,
  }
}

function read(path: string): string | undefined {
  try {
    return readFileSync(path, 'latin1')
  } catch {
    return undefined
  }
}

async function readGpus(
  { lines: nvidia, problem }: GpuList,
  env: NodeJS.ProcessEnv,
): Promise<GpuFacts> {
  const topology =
    nvidia.length > 1 ? linesOf((await run('nvidia-smi', ['topo', '-m'], { env })).stdout) : []
  return { nvidia, topology, problem }
}

const mpiNames = ['libmpi.so.40', 'libmpi.so.12', 'libmpich.so.12', 'libmpi.so']

/** The files that the dynamic linker would find; they are not loaded. */
async function findMpi(env: NodeJS.ProcessEnv): Promise<MpiFacts> {
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
  if (!existsSync(folder)) return []
  return readdirSync(folder)
    .filter((name) => mpiNames.includes(name))
    .map((name) => join(folder, name))
}
