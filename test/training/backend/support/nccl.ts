import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { tsrun, type Finished } from '../../../launcher/support/tsrun.ts'
import { hasKernels, tensorflow } from './tensorflow.ts'

const source = fileURLToPath(new URL('../../../fixtures/nccl/stand-in.c', import.meta.url))
const program = fileURLToPath(new URL('../../../fixtures/training/nccl.mjs', import.meta.url))

const hasCompiler = spawnSync('cc', ['--version']).status === 0

/** What is missing here for the tests; undefined if nothing is. */
export const missing = !hasKernels
  ? 'TensorFlow with these kernels (npx tsrun setup tensorflow)'
  : hasCompiler
    ? undefined
    : 'C compiler (cc)'

/** A stand-in for NCCL, compiled to a folder of its own. */
export class StandIn {
  readonly #folder = mkdtempSync(join(tmpdir(), 'nccl-stand-in-'))

  /** @returns the path of the library */
  compile(name: string, ...flags: readonly string[]): string {
    const path = join(this.#folder, `${name}.so`)
    const options = ['-O2', '-Wall', '-Wextra', '-Werror', '-shared', '-fPIC', ...flags]
    const { status, stderr } = spawnSync('cc', [...options, source, '-o', path, '-pthread', '-lrt'])
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
