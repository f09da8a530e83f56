/** The script of each rank of `spawn`: takes the task from the store, and stores the return value. */
import { types } from 'node:util'
import { compileFunction, constants } from 'node:vm'
import { readProtection, readRankEnvironment, tsrError } from '@tsrun/core'
import { connectStore, storeTlsOf } from '@tsrun/store'
import { putValue, takeValue, TASK, valueOf, type FunctionTask, type Task } from './messages.ts'

type RankFunction = (rank: number, ...args: unknown[]) => unknown

/** The function that a rank calls: an export of the module, or the function compiled from its source. */
async function findFunction(task: Task): Promise<RankFunction> {
  if (task.kind === 'function') return compile(task)
  const { url, entry } = task
  const module = (await import(url)) as Record<string, unknown>
  const found = module[entry]
  if (typeof found === 'function') return found as RankFunction
  const exported = Object.keys(module).filter((name) => typeof module[name] === 'function')
  const problem = `it exports no function ${entry} (functions: ${exported.join(', ') || 'none'})`
  throw tsrError('ERR_TSR_SCRIPT', { script: url, problem })
}

/** esbuild (and so tsx) inserts calls of this helper to preserve the names of functions. */
const keepName = (value: unknown): unknown => value

/** Replaces the coverage counters of Istanbul (`jest --coverage`), which a rank does not have. */
const uncounted: unknown = new Proxy(() => uncounted, {
  get: (_, key) => (key === Symbol.toPrimitive ? () => 0 : uncounted),
  set: () => true,
})

function compile({ source, path }: FunctionTask): RankFunction {
  keepWarningQuiet()
  const counters = new Set(source.match(/\bcov_\w+(?=\(\))/g))
  const make = compileFunction(`return (${source}\n)`, ['__name', ...counters], {
    filename: path,
    importModuleDynamically: constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
  }) as (helper: typeof keepName, ...counters: unknown[]) => RankFunction
  const program = make(keepName, ...Array.from(counters, () => uncounted))
  return async (rank, ...args) => {
    try {
      return await program(rank, ...args)
    } catch (error) {
      throw explain(error, path)
    }
  }
}

/** Explains a common mistake: the function uses a name that its module declares. */
function explain(error: unknown, path: string): unknown {
  if (!types.isNativeError(error) || error.name !== 'ReferenceError') return error
  const { message, stack = '' } = error
  if (!stack.includes(path)) return error
  const why = 'a spawned function is sent as its source and cannot use what is declared outside it'
  error.message = `${message}: ${why}`
  error.stack = stack.replace(message, error.message)
  return error
}

/** Suppresses Node's warning that resolving `import()` from a given path is experimental. */
function keepWarningQuiet(): void {
  const emitWarning = process.emitWarning.bind(process)
  const quiet = (warning: string | Error, ...rest: never[]): void => {
    if (!String(warning).includes('USE_MAIN_CONTEXT_DEFAULT_LOADER')) emitWarning(warning, ...rest)
  }
  process.emitWarning = quiet
}

const { rank, masterAddr, masterPort, token } = readRankEnvironment()!
const store = await connectStore({
  host: masterAddr,
  port: masterPort,
  token,
  tls: storeTlsOf(readProtection()),
})
const { task, args } = (await takeValue(store, TASK)) as { task: Task; args: unknown[] }
const program = await findFunction(task)
const value = await program(rank, ...args)
await putValue(store, valueOf(rank), value)
await store.close()
