import { spawn } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

export const root = fileURLToPath(new URL('../../', import.meta.url))

export interface Outcome {
  readonly code: number | null
  /** Standard output and standard error, in the order they came. */
  readonly output: string
}

/** Runs shell commands as a reader would, and kills all they started when `limit` ms have passed. */
export function runShell(script: string, directory: string, limit: number): Promise<Outcome> {
  const child = spawn('bash', ['-euo', 'pipefail', '-c', script], {
    cwd: directory,
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  })
  let output = ''
  const collect = (text: string): void => void (output += text)
  child.stdout.setEncoding('utf8').on('data', collect)
  child.stderr.setEncoding('utf8').on('data', collect)
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      output += `\nstopped after ${limit} ms`
      process.kill(-child.pid!, 'SIGKILL')
    }, limit)
    child.once('error', reject)
    child.once('close', (code) => {
      clearTimeout(timer)
      // Minified sources in stack traces make lines of many thousand characters.
      resolve({ code, output: output.replace(/^(.{300}).+$/gm, '$1 …') })
    })
  })
}

/** Calls `use` with a folder where programs import the packages as in a reader's project. */
export async function withProject<T>(
  files: Record<string, string>,
  use: (folder: string) => Promise<T>,
): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'tsrun-docs-'))
  try {
    symlinkSync(join(root, 'node_modules'), join(folder, 'node_modules'))
    writeFileSync(join(folder, 'package.json'), '{ "type": "module" }')
    for (const [name, text] of Object.entries(files)) {
      mkdirSync(join(folder, dirname(name)), { recursive: true })
      writeFileSync(join(folder, name), text)
    }
    return await use(folder)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}
