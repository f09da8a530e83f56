import { realpathSync, statSync } from 'node:fs'
import { resolve } from 'node:path'
import { flag } from '@tsrun/core'
import { STEP_RANGE, TRACE_FILE } from '@tsrun/distributed/record'
import { usageError } from '../args/readers.ts'
import { loadObserve } from '../observe.ts'
import { declareCommand } from './context.ts'

/** `tsrun trace <folder..>` */
export const command = declareCommand({
  usage:
    '$0 trace <folder..>\n\nSummarizes what the ranks of a job wrote with tsrun --trace DIR: where the time of a ' +
    'step goes for each rank, what its critical path consists of, and for which rank the others ' +
    `wait. If DIR/${TRACE_FILE} is not there, as after a crash of tsrun, it is written.`,
  argument: { description: 'DIR of --trace DIR; several if each host of the job had its own' },
  flags: {
    steps: {
      description: `${STEP_RANGE}; by default the last ones, as many as can be looked at at once`,
    },
    run: { description: 'the run with this ID; by default the newest one' },
    output: {
      description: 'write the trace for Perfetto into this file, of all folders together',
    },
    json: { reads: flag, fallback: 'false', description: 'print one JSON object' },
  },
  run: async ({ output: file, ...chosen }, { console, cwd }, names) => {
    const directories = pathsOf(names, cwd)
    const output = file === undefined ? undefined : resolve(cwd, file)
    const { summarize } = await loadObserve('tsrun trace', cwd)
    const warn = (problem: string): void => {
      console.print('stderr', `tsrun: ${problem}\n`)
    }
    console.print('stdout', summarize({ ...chosen, directories, names, output, warn }))
  },
})

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
