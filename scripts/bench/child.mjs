import { spawn } from 'node:child_process'

const KEPT = 64 * 1024

/**
 * @typedef {object} Outcome
 * @property {boolean} ok
 * @property {string} output - the end of what it wrote, both streams
 * @property {string} reason - how it ended, when not well
 */

/**
 * Runs a program to its end and keeps the last of its output.
 *
 * @param {string} command
 * @param {readonly string[]} args
 * @param {{ env?: NodeJS.ProcessEnv, timeout?: number }} [options] - timeout in milliseconds
 * @returns {Promise<Outcome>}
 */
export function runToEnd(command, args, { env = process.env, timeout = 600_000 } = {}) {
  return new Promise((resolve) => {
    const deadline = AbortSignal.timeout(timeout)
    const child = spawn(command, args, {
      env,
      stdio: ['ignore', 'pipe', 'pipe'],
      signal: deadline,
    })
    let output = ''
    const keep = (/** @type {Buffer} */ chunk) => {
      output = (output + chunk.toString()).slice(-KEPT)
    }
    child.stdout.on('data', keep)
    child.stderr.on('data', keep)
    /** @type {string | undefined} */
    let failure
    child.once('error', (error) => {
      failure = deadline.aborted ? `no end within ${timeout / 1000} s` : error.message
    })
    child.once('close', (code, signal) => {
      const reason = failure ?? (signal === null ? `exit code ${code}` : `signal ${signal}`)
      resolve({ ok: code === 0, output, reason })
    })
  })
}
