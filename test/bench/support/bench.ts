import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'

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
