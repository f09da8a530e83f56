import { realpathSync, statSync } from 'node:fs'
import { resolve } from 'node:path'
import { STEP_RANGE, TRACE_FILE } from '@tsrun/distributed/record'
import { usageError } from '../args/readers.ts'
import { loadObserve } from '../observe.ts'
import type { AddCommand, CommandContext } from './context.ts'

interface Request {
  readonly folders: readonly string[]
  readonly steps: string | undefined
  readonly run: string | undefined
  readonly output: string | undefined
  readonly json: boolean
}

/** `tsrun trace <folder..>` */
export function addTrace(context: CommandContext): AddCommand {
  return (parser) =>
    parser.command(
      'trace <folder..>',
      'say where the time of the steps of a traced job went',
      (own) =>
        own
          .usage(
            '$0 trace <folder..>\n\nSummarizes what the ranks of a job wrote with tsrun --trace DIR: where the time of a ' +
              'step goes for each rank, what its critical path consists of, and for which rank the others ' +
              `wait. If DIR/${TRACE_FILE} is not there, as after a crash of tsrun, it is written.`,
          )
          .positional('folder', {
            type: 'string',
            array: true,
            demandOption: true,
            describe: 'DIR of --trace DIR; several if each host of the job had its own',
          })
          .option('steps', {
            type: 'string',
            requiresArg: true,
            describe: `${STEP_RANGE}; by default the last ones, as many as can be looked at at once`,
          })
          .option('run', {
            type: 'string',
            requiresArg: true,
            describe: 'the run with this ID; by default the newest one',
          })
          .option('output', {
            type: 'string',
            requiresArg: true,
            describe: 'write the trace for Perfetto into this file, of all folders together',
          })
          .option('json', { type: 'boolean', default: false, describe: 'print one JSON object' })
          .version(false),
      async (argv) => {
        const { folder: folders, steps, run, output, json } = argv
        await showTrace({ folders, steps, run, output, json }, context)
      },
    )
}

/** @throws ERR_TSR_USAGE, ERR_TSR_PACKAGE_MISSING */
async function showTrace(request: Request, { console, cwd }: CommandContext): Promise<void> {
  const { folders: names, steps, run, json } = request
  const directories = pathsOf(names, cwd)
  const output = request.output === undefined ? undefined : resolve(cwd, request.output)
  const { summarize } = await loadObserve('tsrun trace', cwd)
  const warn = (problem: string): void => {
    console.print('stderr', `tsrun: ${problem}\n`)
  }
  const text = summarize({ directories, names, steps, run, output, json, warn })
  console.print('stdout', text)
}

/** The unique paths of the given folders. @throws ERR_TSR_USAGE */
export function pathsOf(folders: readonly string[], cwd: string): string[] {
  const paths = folders.map((folder) => {
    const path = resolve(cwd, folder)
    if (statSync(path, { throwIfNoEntry: false })?.isDirectory() === true) return path
    throw usageError(`${folder} is not a folder`)
  })
  const places = paths.map((path) => realpathSync(path))
  return paths.filter((_, i) => places.indexOf(places[i]!) === i)
}
