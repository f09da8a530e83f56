import { fileURLToPath } from 'node:url'
import { tsrun } from './tsrun.ts'

const checkout = fileURLToPath(new URL('../../../', import.meta.url))

/** Runs a script of the checkout, named from its root, to its good end; what the ranks printed. */
export async function runScript(nproc: number, script: string, ...args: string[]): Promise<string> {
  return await runScriptWith({}, nproc, script, ...args)
}

/** The same with more in the environment. */
async function runScriptWith(
  env: NodeJS.ProcessEnv,
  nproc: number,
  script: string,
  ...args: string[]
): Promise<string> {
  const job = ['--nproc', String(nproc), '--log-format', 'raw', '--no-summary']
  const { code, stderr, stdout } = await tsrun([...job, script, ...args], { cwd: checkout, env })
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
  return stdout
}

/** The figures in the line `result {…}` of an example. */
export function resultIn(stdout: string): Record<string, number> {
  const [, json] = /^result (\{.*\})$/m.exec(stdout)!
  return JSON.parse(json!) as Record<string, number>
}

/**
 * The reports of a program of test/fixtures/training for several groups of ranks, in one job: by request,
 * SIZE/WORD/..., what rank 0 of the group returned.
 */
export async function reportsOf<Report>(
  program: string,
  requests: readonly string[],
  env: NodeJS.ProcessEnv = {},
): Promise<Map<string, Report>> {
  const size = Math.max(...requests.map((request) => Number.parseInt(request)))
  const script = `test/fixtures/training/${program}`
  const reports = JSON.parse(await runScriptWith(env, size, script, ...requests)) as Report[]
  return new Map(requests.map((request, i) => [request, reports[i]!]))
}
