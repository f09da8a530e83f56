import { fileURLToPath } from 'node:url'
import { tsrun } from './tsrun.ts'

const checkout = fileURLToPath(new URL('../../../', import.meta.url))

/** Runs a script of the checkout, named from its root, to its good end; what the ranks printed. */
export async function runScript(nproc: number, script: string, ...args: string[]): Promise<string> {
  const job = ['--nproc', String(nproc), '--log-format', 'raw', '--no-summary']
  const { code, stderr, stdout } = await tsrun([...job, script, ...args], { cwd: checkout })
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  return stdout
}

/** The figures in the line `result {…}` of an example. */
export function resultIn(stdout: string): Record<string, number> {
  const [, json] = /^result (\{.*\})$/m.exec(stdout)!
  return JSON.parse(json!) as Record<string, number>
}
