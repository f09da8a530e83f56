import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { RunError } from './errors.mjs'

const run = promisify(execFile)

/**
 * What a program writes to its standard output.
 *
 * @param {string} program
 * @param {readonly string[]} args
 * @returns {Promise<string>}
 * @throws ERR_BENCH_RUN when it fails
 */
export async function runProgram(program, args) {
  try {
    const { stdout } = await run(program, args, { maxBuffer: 2 ** 28 })
    return stdout
  } catch (error) {
    throw new RunError(`${program} failed: ${error instanceof Error ? error.message : error}`)
  }
}
