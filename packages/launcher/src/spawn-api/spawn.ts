import { fileURLToPath } from 'node:url'
import { tsrError, type TsrError } from '@tsrun/core'
import type { JobOptions } from '../args/job-options.ts'
import { runOnce } from '../job/agent.ts'
import { createJob, type Job } from '../job/job.ts'
import type { Verdict } from '../job/nodes.ts'
import { packageFolder } from '../job/package.ts'
import type { LogDestinations } from '../job/rank-log.ts'
import { findScript } from '../job/script.ts'
import { hostStore, type HostedStore } from '../nodes/endpoint.ts'
import { createAlone } from '../nodes/meet.ts'
import { failureText } from '../report/failure-text.ts'
import type { Failure } from '../report/failure.ts'
import { createSurroundings, type LibrarySurroundings } from './context.ts'
import { checkOptions, type CompleteOptions, type SpawnOptions } from './options.ts'
import { putParcel, takeParcel, TASK, valueOf } from './parcels.ts'
import { planTask, type PlannedTask } from './task.ts'

/**
 * Runs a function as the ranks of a job, each a process of its own, and resolves to their values in
 * the order of the ranks: `tsrun` as a call (`torch.multiprocessing.spawn`, with results).
 *
 * A function is sent as its source: it may close over nothing, and imports what it needs by
 * `import()`. A module is imported by each rank, and its export called. Either is called with the
 * rank and `args`, and may use `initProcessGroup()`. Arguments and values are copied: plain data,
 * typed arrays, Maps, Sets, dates, bigints and Errors, up to 256 MiB for each rank; functions become
 * undefined and instances of classes plain objects. A rank ends like a script, when nothing keeps it
 * alive any more. No rank outlives the call, or this process, however it ends.
 *
 * @param program - a function or an arrow function, or the path or URL of a module
 * @returns by rank: what its function returned
 *
 * @example
 * const squares = await spawn((rank: number, base: number) => (base + rank) ** 2, {
 *   nproc: 3,
 *   args: [10],
 * }) // [100, 121, 144]
 *
 * @throws ERR_TSR_RANK_FAILED when a rank fails: `cause` is its error with its stack, `facts.report`
 * the report that tsrun prints; ERR_TSR_ABORTED, ERR_TSR_TIMEOUT, ERR_TSR_ARGUMENT, ERR_TSR_SCRIPT,
 * ERR_TSR_TYPESCRIPT_LOADER, ERR_TSR_MESSAGE_TOO_LARGE, ERR_TSR_SPAWN
 */
export async function spawn<Value, Args extends readonly unknown[]>(
  program: (rank: number, ...args: Args) => Value,
  options?: SpawnOptions<Args>,
): Promise<Awaited<Value>[]>
export async function spawn<Value = unknown>(
  program: string | URL,
  options?: SpawnOptions,
): Promise<Value[]>
export async function spawn(
  program: ((rank: number, ...args: never) => unknown) | string | URL,
  options: SpawnOptions = {},
): Promise<unknown[]> {
  const complete = checkOptions(options)
  const planned = planTask(program, complete)
  if (complete.signal?.aborted === true) throw stopError('aborted', complete)
  const job = createSpawnJob(complete, planned)
  const store = await hostStore('127.0.0.1', 0, job.identity.token, () => undefined)
  const around = createSurroundings(complete)
  try {
    await putParcel(store.local, TASK, { task: planned.task, args: complete.args })
    const nodes = createAlone(job, store.endpoint, () => store.close())
    const verdict = await runOnce(job, nodes, 0, around)
    await around.console.flush()
    throwFailure(verdict, around, complete)
    return await collect(store, complete.nproc)
  } finally {
    around.release()
    await store.close()
  }
}

function createSpawnJob(options: CompleteOptions, { code }: PlannedTask): Job {
  const { nproc, grace, output, execArgv } = options
  const env = { ...process.env, ...options.env }
  const path = new URL('dist/spawned.js', packageFolder)
  const entry = findScript(fileURLToPath(path), '/')
  const shown: Pick<LogDestinations['options'], 'ranks'> = {
    ranks: output === 'inherit' ? undefined : new Set(),
  }
  const jobOptions: JobOptions = {
    ...{ nproc, nnodes: 1, nodeRank: 0, masterAddr: '127.0.0.1', masterPort: 0 },
    ...{ rdzvTimeout: 0, hostTimeout: 0, tokenFile: undefined, iface: undefined },
    ...{ portRange: undefined, maxRestarts: 0, grace, logDir: undefined, logFormat: 'pretty' },
    ...{ ...shown, summary: false, dryRun: false, script: entry.path, scriptArguments: [] },
  }
  return createJob(jobOptions, env, process.cwd(), entry, { code, execArgv })
}

/** @throws ERR_TSR_RANK_FAILED, ERR_TSR_ABORTED, ERR_TSR_TIMEOUT */
function throwFailure(
  verdict: Verdict,
  { ending }: LibrarySurroundings,
  options: CompleteOptions,
): void {
  if (verdict.kind === 'failure') throw rankError(verdict.failure)
  if (verdict.kind !== 'success') throw stopError(ending() ?? 'aborted', options)
}

function stopError(ending: 'aborted' | 'timeout', options: CompleteOptions): TsrError {
  const { nproc, signal, timeout = 0 } = options
  const what = `spawn of ${nproc} ${nproc === 1 ? 'rank' : 'ranks'}`
  if (ending === 'timeout') return tsrError('ERR_TSR_TIMEOUT', { what, milliseconds: timeout })
  return tsrError('ERR_TSR_ABORTED', { what }, { cause: signal?.reason })
}

/** @throws ERR_TSR_RANK_FAILED */
async function collect({ local }: HostedStore, nproc: number): Promise<unknown[]> {
  const values: unknown[] = []
  for (let rank = 0; rank < nproc; rank++) {
    if (!(await local.check([valueOf(rank)]))) throw noValueError(rank, nproc)
    values.push(await takeParcel(local, valueOf(rank)))
  }
  return values
}

/** The failure report of a job as an error: its cause is that of the rank which failed first. */
function rankError(failure: Failure): TsrError {
  const { rank, worldSize, ended, error, what, code, explanation, jobExitCode } = failure
  const first = what ?? failure.stderr.at(-1)
  const problem = [first === undefined ? ended : `${ended}: ${first}`, explanation]
    .filter((part) => part !== undefined)
    .join('; ')
    .replace(/\.$/, '')
  const report = failureText(failure, false)
  const facts = { rank, worldSize, problem, exitCode: jobExitCode, report }
  if (error === undefined) return tsrError('ERR_TSR_RANK_FAILED', facts)
  const cause = Object.assign(new Error(first), code === undefined ? {} : { code })
  cause.stack = error
  return tsrError('ERR_TSR_RANK_FAILED', facts, { cause })
}

/** Of a rank that ended well without having come to the end of its function. */
function noValueError(rank: number, worldSize: number): TsrError {
  const problem = 'ended with exit code 0 before its function returned'
  return tsrError('ERR_TSR_RANK_FAILED', { rank, worldSize, problem, exitCode: 0, report: '' })
}
