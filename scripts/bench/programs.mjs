// The programs that a benchmark measures: how they are found, compiled, started and run to their end.
import { spawn } from 'node:child_process'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { availableParallelism, cpus, release, tmpdir, totalmem, type } from 'node:os'
import { basename, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const tsrun = fileURLToPath(new URL('../../packages/launcher/bin/tsrun.js', import.meta.url))

/** How much of a program's output an error message shows. */
const LAST_LINES = 20

/** For programs whose libraries would otherwise start a thread on every core. */
export const oneThread = {
  OMP_NUM_THREADS: '1',
  TF_NUM_INTRAOP_THREADS: '1',
  TF_NUM_INTEROP_THREADS: '1',
}

/** A measured program failed; the message shows the end of its output. The exit code is 1. */
export class RunError extends Error {
  code = 'ERR_BENCH_RUN'
}

/**
 * @typedef {{ command: string, args: string[], env?: NodeJS.ProcessEnv }} CommandLine
 *
 * @typedef {object} Outcome
 * @property {boolean} ok
 * @property {string} output - both streams
 * @property {string} stdout
 * @property {string} reason - how the program ended, if it failed
 */

/**
 * Runs a program to its end and keeps its output.
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
    let stdout = ''
    child.stdout.on('data', (/** @type {Buffer} */ chunk) => {
      output += chunk.toString()
      stdout += chunk.toString()
    })
    child.stderr.on('data', (/** @type {Buffer} */ chunk) => {
      output += chunk.toString()
    })
    /** @type {string | undefined} */
    let failure
    child.once('error', (error) => {
      failure = deadline.aborted ? `it did not end within ${timeout / 1000} s` : error.message
    })
    child.once('close', (code, signal) => {
      const reason = failure ?? (signal === null ? `exit code ${code}` : `signal ${signal}`)
      resolve({ ok: code === 0, output, stdout, reason })
    })
  })
}

/**
 * Runs a program and returns what it wrote to its standard output.
 *
 * @param {string} name - for the error message
 * @param {CommandLine} line
 * @returns {Promise<string>}
 * @throws ERR_BENCH_RUN when it fails
 */
export async function runProgram(name, { command, args, env }) {
  const outcome = await runToEnd(command, args, { env: { ...process.env, ...env } })
  if (outcome.ok) return outcome.stdout
  const last = outcome.output.trimEnd().split('\n').slice(-LAST_LINES).join('\n')
  throw new RunError(`${name} failed (${outcome.reason})\n${last}`)
}

/**
 * Runs a job whose rank 0 writes its results into a file, and returns the contents of that file.
 *
 * @param {string} name - for the error message
 * @param {(output: string) => CommandLine} commandLine
 * @returns {Promise<string>}
 * @throws ERR_BENCH_RUN when the job fails
 */
export function runRanks(name, commandLine) {
  return withFolder(async (folder) => {
    const output = join(folder, 'output')
    await runProgram(name, commandLine(output))
    return await readFile(output, 'utf8')
  })
}

/**
 * Starts `script` through the `tsrun` of this checkout.
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
 * Starts a Python script through torchrun, with one thread for each rank.
 *
 * @param {string} python
 * @param {number} ranks
 * @param {string} script
 * @param {readonly string[]} args - for the script
 * @param {NodeJS.ProcessEnv} env
 * @returns {CommandLine}
 */
export function torchrunLine(python, ranks, script, args, env) {
  const launch = ['-m', 'torch.distributed.run', '--standalone', '--local-addr', '127.0.0.1']
  return {
    command: python,
    args: [...launch, '--nproc-per-node', String(ranks), script, ...args],
    env: {
      ...oneThread,
      // Otherwise gloo looks up the name of the host, which may not resolve to the loopback.
      ...(process.platform === 'linux' && {
        GLOO_SOCKET_IFNAME: env['GLOO_SOCKET_IFNAME'] ?? 'lo',
      }),
    },
  }
}

/**
 * The Python that TSRUN_BENCH_PYTHON names, if it has torch.
 *
 * @param {NodeJS.ProcessEnv} env
 * @returns {Promise<{ python: string, version: string } | { skipped: string }>}
 */
export async function findTorchPython(env) {
  const python = env['TSRUN_BENCH_PYTHON']
  if (!python) return { skipped: 'no torch (set TSRUN_BENCH_PYTHON)' }
  const probe = 'import torch; print(torch.__version__)'
  const { ok, output } = await runToEnd(python, ['-c', probe])
  if (!ok) return { skipped: `no torch (TSRUN_BENCH_PYTHON=${python} has none)` }
  return { python, version: output.trim().split('\n').at(-1) ?? 'unknown' }
}

/**
 * Compiles a C program with `cc -O3`.
 *
 * @param {URL} source
 * @param {string} folder - for the program
 * @param {NodeJS.ProcessEnv} [env]
 * @returns {Promise<string | undefined>} the path of the program; undefined, with a message on
 *   stderr, where there is no `cc`
 */
export async function compile(source, folder, env = process.env) {
  const program = join(folder, basename(source.pathname, '.c'))
  const args = ['-O3', '-o', program, fileURLToPath(source)]
  const { ok, reason, output } = await runToEnd('cc', args, { env })
  if (ok) return program
  const why = output.trim().split('\n').at(-1) || reason
  console.error(`skipped: the comparison with a C program (cc: ${why})`)
  return undefined
}

/**
 * Lends a new folder to `use`, and removes it afterwards.
 *
 * @template T
 * @param {(folder: string) => Promise<T>} use
 * @returns {Promise<T>}
 */
export async function withFolder(use) {
  const folder = await mkdtemp(join(tmpdir(), 'tsrun-bench-'))
  try {
    return await use(folder)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** @typedef {ReturnType<typeof describeMachine>} Machine */

/** What a reader has to know about the machine that measured. */
export function describeMachine() {
  return {
    cpu: cpus()[0]?.model.trim() || 'unknown CPU',
    cores: availableParallelism(),
    memoryGiB: Number((totalmem() / 2 ** 30).toFixed(1)),
    system: `${type()} ${release()} ${process.arch}`,
    node: process.version,
  }
}
