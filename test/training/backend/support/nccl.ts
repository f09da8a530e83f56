import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { tsrun, type Finished } from '../../../launcher/support/tsrun.ts'
import { hasKernels, manifest, tensorflow } from './tensorflow.ts'

const folderOf = (path: string): string => fileURLToPath(new URL(path, import.meta.url))
const sources = folderOf('../../../fixtures/nccl')
const native = folderOf('../../../../packages/launcher/src/setup/native')
const program = folderOf('../../../fixtures/training/nccl.mjs')

const hasCompiler = ['cc', 'c++'].every((name) => spawnSync(name, ['--version']).status === 0)

/** What is missing here for the tests; undefined if nothing is. */
export const missing = !hasKernels
  ? 'TensorFlow with these kernels (npx tsrun setup tensorflow)'
  : hasCompiler
    ? undefined
    : 'compiler (cc, c++)'

/** What is compiled of test/fixtures/nccl, in a folder of its own. */
export class Compiled {
  readonly #folder = mkdtempSync(join(tmpdir(), 'nccl-stand-in-'))

  /** A stand-in for NCCL. @returns the path of the library */
  standIn(name: string, ...flags: readonly string[]): string {
    const options = ['-O2', '-Wall', '-Wextra', '-Werror', '-shared', '-fPIC', ...flags]
    return this.#compile('cc', `${name}.so`, [...options, join(sources, 'stand-in.c'), '-lrt'])
  }

  /** The communicator of the binding, on streams of its own. @returns the path of the program */
  streams(): string {
    const { folder, package: name, libraryFolders } = manifest!
    const [wheel] = libraryFolders
    const modules = join(folder, 'node_modules')
    const binding = join(modules, name)
    const headers = [join(modules, 'node-api-headers/include'), join(wheel!, 'include'), binding]
    return this.#compile('c++', 'streams', [
      ...['-O1', '-DNDEBUG', '-std=c++17', '-w', '-fno-access-control', '-DNAPI_VERSION=8'],
      ...[...headers, join(binding, 'binding'), native].map((path) => `-I${path}`),
      ...[join(sources, 'streams.cc'), `-L${wheel!}`, `-Wl,-rpath,${wheel!}`],
      ...['-l:libtensorflow_cc.so.2', '-l:libtensorflow_framework.so.2'],
    ])
  }

  #compile(compiler: string, name: string, args: readonly string[]): string {
    const path = join(this.#folder, name)
    const { status, stderr } = spawnSync(compiler, [...args, '-o', path, '-pthread'])
    expect({ status, stderr: String(stderr) }).toEqual({ status: 0, stderr: '' })
    return path
  }

  remove(): void {
    rmSync(this.#folder, { recursive: true, force: true })
  }
}

/** Two ranks run these cases of test/fixtures/training/nccl.mjs. */
export async function runCases(env: NodeJS.ProcessEnv, ...cases: string[]): Promise<Finished> {
  const job = ['--nproc', '2', '--log-format', 'raw', '--no-summary', program, ...cases]
  return await tsrun(job, { env: { ...tensorflow, TSRUN_BACKEND: 'tensorflow', ...env } })
}

/** What the ranks have reported, in their order. */
export function reportsIn({ code, stdout, stderr }: Finished): Record<string, unknown>[] {
  const lines = stdout.split('\n').filter((line) => line.startsWith('report '))
  expect({ code, stderr, reports: lines.length }).toMatchObject({ code: 0, reports: 2 })
  return lines
    .map((line) => JSON.parse(line.slice('report '.length)) as Record<string, unknown>)
    .sort((a, b) => Number(a['rank']) - Number(b['rank']))
}
