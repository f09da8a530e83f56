import { statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { flag } from '@tsrun/core'
import { STEP_RANGE, TRACE_FILE } from '@tsrun/distributed/record'
import { port, usageError } from '../args/readers.ts'
import { declareCommand } from './context.ts'
import { stayUntilAborted } from '../job/process/interrupts.ts'
import { readRuns } from '../job/run-records.ts'
import { readFailureReport } from '../job/trace-folder.ts'
import { readLastLines } from '../logs/recorded-output.ts'
import { loadObserve } from '../observe.ts'

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

function pathsOf(folders: readonly string[], cwd: string): string[] {
  return folders.map((folder) => {
    const path = resolve(cwd, folder)
    if (statSync(path, { throwIfNoEntry: false })?.isDirectory() === true) return path
    throw usageError(`${folder} is not a folder`)
  })
}

const MOST_LINES = 2000

export const view = declareCommand({
  usage:
    '$0 view <folder..>\n\nServes a page that shows a job after its end, until Ctrl-C: where the time of its steps ' +
    'went, what each rank did in each step, loss and rate, what ranks printed, and the report of a ' +
    'failure. The steps are those of tsrun --trace DIR, the lines those of tsrun logs.',
  argument: { description: 'DIR of --trace DIR; several if each host of the job had its own' },
  flags: {
    run: { description: 'the run with this ID; by default the newest one' },
    port: {
      reads: port,
      fallback: '0',
      description: 'the port of the page at 127.0.0.1; 0 is any free one',
    },
  },
  run: async ({ run, port: chosen }, { console, cwd, env, interrupts }, folders) => {
    const { findTrace, servePage } = await loadObserve('tsrun view', cwd)
    const paths = pathsOf(folders, cwd)
    const trace = findTrace(paths, folders, run)
    for (const problem of trace.problems) {
      console.print('stderr', `tsrun: cannot use ${problem}\n`)
    }
    const { runId, lastAttempt } = trace
    const record = readRuns(env).find((each) => each.runId === runId)
    const logs = typeof record?.logDir === 'string' ? [join(record.logDir, runId)] : []
    const reports = paths.map((path) => readFailureReport(path, runId, lastAttempt))
    const server = await servePage(chosen, {
      runId,
      trace,
      script: record?.script ?? runId,
      ...readLastLines(logs, MOST_LINES),
      report: reports.find((text) => text !== undefined),
    }).catch((cause: unknown) => {
      throw usageError(`--port ${chosen}: ${(cause as Error).message}`, cause)
    })
    console.print('stdout', `${server.url}\n`)
    console.print('stderr', 'tsrun: serving the page until Ctrl-C\n')
    // Wait here, because the server does not keep the process alive.
    await stayUntilAborted(interrupts.stop)
    await server.close()
  },
})
