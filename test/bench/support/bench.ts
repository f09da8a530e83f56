import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import { runBench } from '../../../scripts/bench/commands.mjs'

const main = fileURLToPath(new URL('../../../scripts/bench/main.mjs', import.meta.url))

export interface Outcome {
  code: number
  stdout: string
  stderr: string
}

/** Runs `npm run bench -- ...args` to its end. */
export function bench(args: string[], env: NodeJS.ProcessEnv = {}): Promise<Outcome> {
  return new Promise((resolve) => {
    const options = { env: { ...process.env, ...env } }
    const child = execFile(process.execPath, [main, ...args], options, (_, stdout, stderr) => {
      resolve({ code: child.exitCode ?? -1, stdout, stderr })
    })
  })
}

/** The rows that a command prints with --json. */
export function rowsIn(stdout: string): Record<string, unknown>[] {
  const lines = stdout.trimEnd().split('\n')
  return lines.map((line) => JSON.parse(line) as Record<string, unknown>)
}

/** Runs a command with --json to its end; its rows. */
export async function rowsOf(
  args: string[],
  env: NodeJS.ProcessEnv = {},
): Promise<Record<string, unknown>[]> {
  const { code, stdout, stderr } = await bench([...args, '--json'], env)
  expect({ code, stderr }).toEqual({ code: 0, stderr })
  return rowsIn(stdout)
}

/** Runs a command in this process: for what it says before it starts ranks. */
export async function benchHere(args: string[]): Promise<Outcome> {
  const [stdout, stderr] = [spyOn('log'), spyOn('error')]
  try {
    const code = await runBench(args)
    return { code, stdout: linesOf(stdout), stderr: linesOf(stderr) }
  } finally {
    jest.restoreAllMocks()
  }
}

function spyOn(method: 'log' | 'error') {
  return jest.spyOn(console, method).mockImplementation(() => undefined)
}

function linesOf({ mock }: ReturnType<typeof spyOn>): string {
  return mock.calls.map((words) => `${words.join(' ')}\n`).join('')
}
