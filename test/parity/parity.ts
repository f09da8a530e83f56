import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { configurations } from '../../scripts/parity/configurations.mjs'
import { tensorflow } from '../training/backend/support/tensorflow.ts'

export const main = fileURLToPath(new URL('../../scripts/parity/main.mjs', import.meta.url))

interface Row {
  readonly configuration: string
  readonly model: string
  readonly math: string
  readonly blas: string | null
  readonly ranks: number
  readonly verdict: string
  readonly gradients: number
  readonly collectives: number
  readonly messages: number
  readonly miscounts: readonly string[]
  readonly covered: boolean
  readonly bits: boolean | null
}

/** The names of the layouts that a model is trained in. */
export function layoutsOf(model: string): string[] {
  return configurations
    .filter(({ models }) => models?.some((name) => name === model) ?? true)
    .map(({ name }) => name)
}

/** What `npm run parity` prints with these flags. */
export async function parity(args: readonly string[], TSRUN_BLAS = 'off'): Promise<Row[]> {
  const env = { ...process.env, ...tensorflow, TSRUN_BLAS }
  const { stdout } = await promisify(execFile)(process.execPath, [main, '--json', ...args], { env })
  return stdout
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Row)
}
