import { Writable } from 'node:stream'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { Script as Syntax } from 'node:vm'
import { argumentError, readProtection, tsrError, type TsrError, shown } from '@tsrun/core'
import { storeTlsOf } from '@tsrun/store'
import { toJobOptions, type JobOptions } from '../args/job-options.ts'
import { reasonOf } from '../args/readers.ts'
import { completeSettings } from '../args/settings.ts'
import { createChaos } from '../job/chaos/chaos.ts'
import { checkRanks, toChaosPlan, type ChaosPlan } from '../job/chaos/plan.ts'
import { runOnce } from '../job/agent.ts'
import { createJob, type Job } from '../job/job.ts'
import type { Interrupts } from '../job/process/interrupts.ts'
import { createAnnouncer, openConsole } from '../logs/console.ts'
import type { RankLineReader } from '../logs/lines.ts'
import { packageFolder } from '../package.ts'
import { findScript, type Script } from '../job/code/script.ts'
import { startJobStore, type JobStore } from '../nodes/endpoint.ts'
import { createOnlyNode, warnOfLoopback } from '../nodes/rendezvous.ts'
import { failureText } from '../job/failure/failure-text.ts'
import type { Failure, Interruption } from '../protocol/nodes.ts'
import { putValue, takeValue, TASK, valueOf, type Task } from './messages.ts'
import { readOptions, type CompleteOptions, type SpawnOptions } from './options.ts'

/**
 * A running job of `spawn`: a promise of the return values, by rank. After `await using job = spawn(...)`,
 * the ranks are stopped at the end of the block, which waits until they have ended.
 */
export type SpawnedJob<Value> = Promise<Value[]> & AsyncDisposable

/**
 * Runs a function in the ranks of a job, each in a separate process. Resolves to their return values in
 * the order of the ranks. Works like `torch.multiprocessing.spawn`, but also returns the values.
 *
 * A function is sent as source code. It must not use variables from outside, and it imports modules
 * with `import()`. For a module, each rank imports it and calls its export. The function gets the rank
 * and `args`, and may call `initProcessGroup()`. Arguments and values are copied: plain data, typed
 * arrays, Maps, Sets, dates, bigints and Errors, up to 256 MiB for each rank. Functions become undefined,
 * and class instances become plain objects. A rank exits when its event loop is empty. Ranks never outlive
 * the call or this process, even if it crashes.
 *
 * @param program - a function or an arrow function, or the path or URL of a module
 * @returns the return value of each rank, by rank
 *
 * @example
 * const squares = await spawn((rank: number, base: number) => (base + rank) ** 2, {
 *   nproc: 3,
 *   args: [10],
 * }) // [100, 121, 144]
 *
 * @throws ERR_TSR_RANK_FAILED when a rank fails: `cause` is its error with its stack, and
 *   `facts.report` is the report that tsrun would print; ERR_TSR_ABORTED, ERR_TSR_TIMEOUT,
 *   ERR_TSR_ARGUMENT, ERR_TSR_SCRIPT, ERR_TSR_TYPESCRIPT_LOADER, ERR_TSR_MESSAGE_TOO_LARGE, ERR_TSR_SPAWN
 */
export function spawn<Value, Args extends readonly unknown[]>(
  program: (rank: number, ...args: Args) => Value,
  options?: SpawnOptions<Args>,
): SpawnedJob<Awaited<Value>>
export function spawn<Value = unknown>(
  program: string | URL,
  options?: SpawnOptions,
): SpawnedJob<Value>
export function spawn(program: Program, options: SpawnOptions = {}): SpawnedJob<unknown> {
  const disposal = new AbortController()
  const values = run(program, options, disposal.signal)
  return Object.assign(values, {
    async [Symbol.asyncDispose]() {
      disposal.abort()
      await values.catch(() => undefined)
    },
  })
}

async function run(
  program: Program,
  options: SpawnOptions,
  disposal: AbortSignal,
): Promise<unknown[]> {
  const complete = readOptions(options)
  const planned = planTask(program, complete)
  if (complete.signal?.aborted === true) throw stopError('aborted', complete)
  const job = createSpawnJob(complete, planned)
  const chaos = chaosOf(complete)
  const tls = storeTlsOf(job.protection)
  const store = await startJobStore('127.0.0.1', 0, job.identity.token, () => undefined, tls)
  const context = createContext(complete, chaos, disposal)
  try {
    warnOfLoopback(store.endpoint.host, context.announcer)
    await putValue(store.local, TASK, { task: planned.task, args: complete.args })
    const nodes = createOnlyNode(job, store)
    const { verdict } = await runOnce(job, nodes, 0, context)
    await context.console.flush()
    if (verdict.kind === 'failure') throw rankError(verdict.failure)
    if (verdict.kind !== 'success') throw stopError(context.stopReason() ?? 'aborted', complete)
    return await collect(store, complete.nproc)
  } finally {
    context.release()
    await store.close()
  }
}

/** Why a job was stopped before its ranks ended. */
type StopReason = 'aborted' | 'timeout'

/** Creates the context of a job inside a program. The program's signals and streams stay unchanged. */
function createContext(
  { output, signal, timeout }: CompleteOptions,
  plan: ChaosPlan | undefined,
  disposal: AbortSignal,
) {
  const console = openConsole(
    { stdout: forwardTo(process.stdout), stderr: forwardTo(process.stderr) },
    () => undefined,
  )
  let reason: StopReason | undefined
  const stop = new AbortController()
  const end = (why: StopReason): void => {
    reason ??= why
    stop.abort({ exitCode: 1, reason: undefined } satisfies Interruption)
  }
  const abort = (): void => {
    end('aborted')
  }
  signal?.addEventListener('abort', abort)
  disposal.addEventListener('abort', abort)
  if (signal?.aborted === true || disposal.aborted) abort()
  const timer = timeout === undefined ? undefined : setTimeout(end, timeout, 'timeout')
  const interrupts: Interrupts = {
    stop: stop.signal,
    kill: new AbortController().signal,
    handle: () => undefined,
    interrupt: () => undefined,
    force: () => undefined,
  }
  const announcer = createAnnouncer(console, 'pretty')
  const onLine: RankLineReader | undefined =
    typeof output === 'function'
      ? (rank, stream, { text }) => {
          output({ rank, stream, text })
        }
      : undefined
  return {
    console,
    announcer,
    chaos: plan && createChaos(plan, announcer, undefined),
    interrupts,
    onLine,
    /** Undefined if the job was not stopped. */
    stopReason: () => reason,
    release: () => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', abort)
    },
  }
}

/**
 * Wraps a stream, so that the program's own listeners are unaffected. Passes no callback to `write`,
 * because the program may have replaced `write` with a function that ignores callbacks.
 */
function forwardTo(stream: NodeJS.WriteStream): Writable {
  return new Writable({
    write: (chunk: Buffer, _, done) => {
      const isFull = !stream.write(chunk) && stream.writableNeedDrain && !stream.destroyed
      if (!isFull) {
        done()
        return
      }
      const goOn = (): void => {
        stream.off('drain', goOn).off('close', goOn)
        done()
      }
      stream.on('drain', goOn).on('close', goOn)
    },
  })
}

function createSpawnJob(options: CompleteOptions, { code }: PlannedTask): Job {
  const { nproc, grace, output, execArgv, chaos } = options
  const env = { ...process.env, ...options.env }
  const path = new URL('dist/spawned.js', packageFolder)
  const entry = findScript(fileURLToPath(path), '/')
  const machine = { cores: 1, gpus: () => 0, usesGpus: () => false }
  const flags = { nproc: String(nproc), stdin: 'none' }
  const defaults = toJobOptions(completeSettings(flags, {}), [entry.path], machine)
  const jobOptions: JobOptions = {
    ...defaults,
    // Ranks only check whether `chaos` is set, so any text works.
    program: {
      ...defaults.program,
      nodeArguments: execArgv,
      chaos: chaos && 'an option of spawn',
    },
    protection: { ...defaults.protection, ...readProtection(env), environment: {} },
    // Show the output of ranks only if it is inherited.
    output: { ...defaults.output, ranks: output === 'inherit' ? undefined : new Set() },
    restart: { ...defaults.restart, grace },
  }
  return createJob(jobOptions, env, process.cwd(), entry, code)
}

function chaosOf({ chaos, nproc }: CompleteOptions): ChaosPlan | undefined {
  if (chaos === undefined) return undefined
  try {
    const plan = toChaosPlan(chaos)
    checkRanks(plan, nproc)
    return plan
  } catch (error) {
    throw argumentError('chaos', reasonOf(error), 'a plan of faults')
  }
}

function stopError(reason: StopReason, options: CompleteOptions): TsrError {
  const { nproc, signal, timeout = 0 } = options
  const what = `spawn of ${nproc} ${nproc === 1 ? 'rank' : 'ranks'}`
  if (reason === 'timeout') return tsrError('ERR_TSR_TIMEOUT', { what, milliseconds: timeout })
  return tsrError('ERR_TSR_ABORTED', { what }, { cause: signal?.reason })
}

async function collect({ local }: JobStore, nproc: number): Promise<unknown[]> {
  const values: unknown[] = []
  for (let rank = 0; rank < nproc; rank++) {
    if (!(await local.check([valueOf(rank)]))) {
      const problem = 'ended with exit code 0 before its function returned'
      const facts = { rank, worldSize: nproc, problem, exitCode: 0, report: '' }
      throw tsrError('ERR_TSR_RANK_FAILED', facts)
    }
    values.push(await takeValue(local, valueOf(rank)))
  }
  return values
}

/** Converts a failure report to an error, whose cause is the error of the rank that failed first. */
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

/** A task, and the file whose extension determines the task's language. */
interface PlannedTask {
  readonly task: Task
  readonly code: Script
}

/** The task of the ranks: a function, or the path or URL of a module. */
type Program = ((rank: number, ...args: never) => unknown) | string | URL

function planTask(program: Program, options: CompleteOptions): PlannedTask {
  const { base, export: entry } = options
  if (typeof program === 'function') {
    if (entry !== undefined) {
      throw argumentError('export', shown(entry), 'none with a function, which is called itself')
    }
    const path = pathOf(base ?? process.argv[1] ?? join(process.cwd(), 'eval.js'))
    const code = base === undefined ? languageOf(path) : findScript(path, '/')
    const name = program.name === '' ? 'function' : program.name
    const source = sourceOf(program)
    return { task: { kind: 'function', source, path: `${path}#${name}` }, code }
  }
  if (typeof program !== 'string' && !isUrl(program)) {
    throw argumentError('program', shown(program), 'a function, or the path or URL of a module')
  }
  const code = findScript(pathOf(program), process.cwd())
  return {
    task: { kind: 'module', url: pathToFileURL(code.path).href, entry: entry ?? 'default' },
    code,
  }
}

/** The language of the file; JavaScript if the extension is unknown. */
function languageOf(path: string): Script {
  try {
    return findScript(path, '/')
  } catch {
    return { path, language: 'javascript' }
  }
}

/** Match Vite's replacements for `import(...)` and for the names that a module imports. */
const VITE_IMPORT = /\b__vite_ssr_dynamic_import__\((?:"(\/[^"\\]*)")?/g
const VITE_NAME = /\b__vi(te_ssr)?_import_(\d+|meta)__/

function sourceOf(program: (...args: never) => unknown): string {
  const source = Function.prototype.toString
    .call(program)
    .replaceAll(VITE_IMPORT, (_, file?: string) => {
      return `import(${file === undefined ? '' : JSON.stringify(urlOfVite(file))}`
    })
  if (VITE_NAME.test(source)) {
    throw argumentError(
      'program',
      'a function that uses what its module imports, or its import.meta',
      'one that imports inside of it, or the URL of a module that exports it: ' +
        "spawn(new URL('./work.ts', import.meta.url), { export: 'work' })",
    )
  }
  const isClass = /^class\b/.test(source)
  if (!isClass && parses(`(${source}\n)`)) return source
  throw argumentError(
    'program',
    `${isClass ? 'a class' : 'a function'} ${program.name}`.trim(),
    'a function or an arrow function, and no method, class, bound or native function',
  )
}

/** The URL of a path as Vite writes it: relative to Vite's root, or absolute. Vitest exposes the root. */
function urlOfVite(name: string): string {
  const anywhere = /^\/@fs(\/.*)/.exec(name)?.[1]
  if (anywhere !== undefined) return pathToFileURL(anywhere).href
  const { __vitest_worker__: worker } = globalThis as {
    readonly __vitest_worker__?: { readonly config?: { readonly root?: string } }
  }
  const below = join(worker?.config?.root ?? process.cwd(), name)
  return pathToFileURL(existsSync(below) ? below : name).href
}

function parses(source: string): boolean {
  try {
    new Syntax(source)
    return true
  } catch {
    return false
  }
}

/** Avoids `instanceof`, which fails for a URL of another realm (`node:vm`). */
function isUrl(value: unknown): value is URL {
  return typeof value === 'object' && value !== null && 'href' in value
}

function pathOf(address: string | URL): string {
  const text = isUrl(address) ? address.href : address
  if (!/^[a-z][a-z+.-]+:/i.test(text)) return resolve(text)
  if (text.startsWith('file:')) return fileURLToPath(text)
  throw argumentError('program', shown(text), 'a function, or the path or file: URL of a module')
}
