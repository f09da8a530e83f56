import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { runToEnd } from './child.mjs'
import { RunError } from './errors.mjs'
import { withFolder } from './temporary-folder.mjs'

const tsrun = fileURLToPath(new URL('../../packages/launcher/bin/tsrun.js', import.meta.url))

const LAST_LINES = 20

/** @typedef {{ command: string, args: string[], env?: NodeJS.ProcessEnv }} CommandLine */

/**
 * Starts `script` through this checkout's `tsrun`.
 *
 * @param {number} ranks
 * @param {string} script
 * @param {readonly string[]} [args] - for the script
 * @returns {CommandLine}
 */
export function tsrunLine(ranks, script, args = []) {
  return { command: process.execPath, args: [tsrun, '--nproc', String(ranks), script, ...args] }
}

/**
 * Runs a job whose rank 0 writes its results into a file, and returns what it wrote.
 *
 * @param {string} name - for the error
 * @param {(output: string) => CommandLine} commandLine
 * @returns {Promise<string>}
 * @throws ERR_BENCH_RUN when the job fails, with the end of its output
 */
export function runRanks(name, commandLine) {
  return withFolder(async (folder) => {
    const output = join(folder, 'output')
    const { command, args, env } = commandLine(output)
    const outcome = await runToEnd(command, args, { env: { ...process.env, ...env } })
    if (!outcome.ok) {
      const last = outcome.output.trimEnd().split('\n').slice(-LAST_LINES).join('\n')
      throw new RunError(`${name} failed (${outcome.reason})\n${last}`)
    }
    return await readFile(output, 'utf8')
  })
}
