/**
 * The script of a rank that `spawn` starts: it takes its task from the store, calls the function and
 * puts the value into the store.
 */
import { types } from 'node:util'
import { compileFunction, constants } from 'node:vm'
import { readRankEnvironment, tsrError } from '@tsrun/core'
import { connectStore } from '@tsrun/store'
import { putParcel, takeParcel, TASK, valueOf } from './parcels.ts'
import type { Task, FunctionTask } from './task.ts'

type RankFunction = (rank: number, ...args: unknown[]) => unknown

/**
 * What a rank calls: the export of the module, or the function that its source makes.
 *
 * @throws ERR_TSR_SCRIPT when the module exports no such function
 */
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

/** Compilers that keep names (esbuild, and so tsx) call this helper of theirs. */
const keepName = (value: unknown): unknown => value

function compile({ source, path }: FunctionTask): RankFunction {
  keepWarningQuiet()
  const make = compileFunction(`return (${source}\n)`, ['__name'], {
    filename: path,
    importModuleDynamically: constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
  }) as (helper: typeof keepName) => RankFunction
  const program = make(keepName)
  return async (rank, ...args) => {
    try {
      return await program(rank, ...args)
    } catch (error) {
      throw explain(error, path)
    }
  }
}

/** The usual mistake: a name of the module around the function. */
function explain(error: unknown, path: string): unknown {
  if (!types.isNativeError(error) || error.name !== 'ReferenceError') return error
  const { message, stack = '' } = error
  if (!stack.includes(path)) return error
  const why =
    'a spawned function is sent as its source and sees nothing that is declared outside it'
  error.message = `${message}: ${why}`
  error.stack = stack.replace(message, error.message)
  return error
}

/** That `import()` finds modules from a given path is experimental in `node:vm`, and works. */
function keepWarningQuiet(): void {
  const emitWarning = process.emitWarning.bind(process)
  const quiet = (warning: string | Error, ...rest: never[]): void => {
    if (!String(warning).includes('USE_MAIN_CONTEXT_DEFAULT_LOADER')) emitWarning(warning, ...rest)
  }
  process.emitWarning = quiet
}

const { rank, masterAddr, masterPort, token } = readRankEnvironment()!
const store = await connectStore({ host: masterAddr, port: masterPort, token })
const { task, args } = (await takeParcel(store, TASK)) as { task: Task; args: unknown[] }
const program = await findFunction(task)
const value = await program(rank, ...args)
await putParcel(store, valueOf(rank), value)
await store.close()
