import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { linesOf, type GpuList } from '../../plan/gpu-list.ts'
import type { GpuFacts, MpiFacts } from '../facts.ts'
import { run } from './run.ts'

export async function readGpus(
  { lines: nvidia, problem }: GpuList,
  env: NodeJS.ProcessEnv,
): Promise<GpuFacts> {
  const topology =
    nvidia.length > 1 ? linesOf((await run('nvidia-smi', ['topo', '-m'], { env })).stdout) : []
  return { nvidia, topology, problem }
}

const mpiNames = ['libmpi.so.40', 'libmpi.so.12', 'libmpich.so.12', 'libmpi.so']

/** The files that the dynamic linker would find; they are not loaded. */
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
  if (!existsSync(folder)) return []
  return readdirSync(folder)
    .filter((name) => mpiNames.includes(name))
    .map((name) => join(folder, name))
}
