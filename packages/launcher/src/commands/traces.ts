import { existsSync, realpathSync, statSync } from 'node:fs'
import { basename, join, resolve } from 'node:path'
import { flag } from '@tsrun/core'
import { STEP_RANGE, TRACE_FILE } from '@tsrun/distributed/record'
import { port, usageError } from '../args/readers.ts'
import { type CommandContext, declareCommand } from './context.ts'
import { findLogs, noLogs } from './find-logs.ts'
import { stayUntilAborted } from '../job/process/interrupts.ts'
import { readRuns } from '../job/run-records.ts'
import { readFailureReport } from '../job/trace-folder.ts'
import { readLastLines } from '../logs/recorded-output.ts'
import { loadObserve, type Observe } from '../observe.ts'

/** `tsrun trace <folder..>` */
export const trace = declareCommand({
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
function pathsOf(folders: readonly string[], cwd: string): string[] {
  const paths = folders.map((folder) => {
    const path = resolve(cwd, folder)
    if (statSync(path, { throwIfNoEntry: false })?.isDirectory() === true) return path
    throw usageError(`${folder} is not a folder`)
  })
  const places = paths.map((path) => realpathSync(path))
  return paths.filter((_, i) => places.indexOf(places[i]!) === i)
}

const MOST_LINES = 2000

/** `tsrun view <folder..>` */
export const view = declareCommand({
  usage:
    '$0 view <folder..>\n\nServes a page that shows a job after its end, until Ctrl-C: where the time of its steps ' +
    'went, what each rank did in each step, loss and rate, what ranks printed, and the report of a ' +
    'failure. The steps are those of tsrun --trace DIR, the lines those of --log-dir DIR.',
  argument: {
    description: 'DIR of --trace DIR or of --log-dir DIR; several if each host had its own',
  },
  flags: {
    run: { description: 'the run with this ID; by default the newest one' },
    port: {
      reads: port,
      fallback: '0',
      description: 'the port of the page at 127.0.0.1; 0 is any free one',
    },
  },
  run: async ({ run, port: chosen }, context, folders) => {
    const { console, cwd, interrupts } = context
    const observe = await loadObserve('tsrun view', cwd)
    const page = readPage(folders, run, observe, context)
    const server = await observe.servePage(chosen, page).catch((cause: unknown) => {
      throw usageError(`--port ${chosen}: ${(cause as Error).message}`, cause)
    })
    console.print('stdout', `${server.url}\n`)
    console.print('stderr', 'tsrun: serving the page until Ctrl-C\n')
    // Wait here, because the server does not keep the process alive.
    await stayUntilAborted(interrupts.stop)
    await server.close()
  },
})

/** @throws ERR_TSR_USAGE, ERR_TSR_NO_LOGS */
function readPage(
  folders: readonly string[],
  run: string | undefined,
  { findTrace }: Observe,
  { console, cwd, env }: CommandContext,
): Parameters<Observe['servePage']>[1] {
  const warn = (problem: string): void => {
    console.print('stderr', `tsrun: cannot use ${problem}\n`)
  }
  const paths = pathsOf(folders, cwd)
  const traces = paths.filter((path) => existsSync(join(path, 'spans')))
  const logs = paths.filter((path) => !traces.includes(path))
  const trace = traces.length === 0 ? undefined : findTrace(traces, folders, run)
  trace?.problems.forEach(warn)
  const found = logs.map((path) => findLogs(chosenRun(path, run ?? trace?.runId), env, cwd).folder)
  const runId = trace?.runId ?? run ?? basename(found[0]!)
  const own = found.filter((folder) => basename(folder) === runId)
  if (trace === undefined && own.length === 0) {
    throw noLogs(`run ${runId}`, `there are none in ${folders.join(', ')}`)
  }
  for (const folder of found) {
    if (!own.includes(folder)) warn(`${folder}: it is not of run ${runId}`)
  }
  const record = readRuns(env).find((each) => each.runId === runId)
  const kept = typeof record?.logDir === 'string' ? [join(record.logDir, runId)] : []
  return {
    runId,
    trace,
    script: record?.script ?? runId,
    ...readLastLines(own.length > 0 ? own : kept, MOST_LINES),
    report: traces
      .map((path) => readFailureReport(path, runId, trace?.lastAttempt ?? 0))
      .find((text) => text !== undefined),
  }
}

/** The folder of a run inside a --log-dir, if the run is there. */
function chosenRun(path: string, run: string | undefined): string {
  const own = join(path, run ?? '')
  return existsSync(own) ? own : path
}
