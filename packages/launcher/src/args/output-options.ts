import type { Values } from './flags.ts'
import { templateProblem } from './log-prefix.ts'
import { usageError, type Setting } from './readers.ts'
import type { Settings } from './settings.ts'

export type LogFormat = Values['log-format']

export type OutputOptions = ReturnType<typeof toOutput>

/** Options for recording the steps of ranks, for `--trace` and the dashboard. */
export type TraceOptions = NonNullable<OutputOptions['trace']>

export function toOutput(values: Values, settings: Settings) {
  const prefix = settings['log-prefix'] ?? settings['log-line-prefix-template']
  return {
    directory: values['log-dir'],
    /** The folder for the output of recent jobs, if `directory` is undefined. */
    kept: undefined as string | undefined,
    /** Bytes of output after which the log files of a rank are rotated; undefined: never. */
    logMaxSize: values['log-max-size'],
    format: values['log-format'],
    /** The template for the prefix of lines; undefined: `[rank 3] `. */
    prefix: prefix && readPrefix(prefix),
    /** The file for the events of the job, or stderr (`console`); undefined: events are not written. */
    eventLog: eventLogOf(values),
    dashboard: dashboardOf(values, settings),
    metrics: values.metrics,
    trace: traceOf(values, settings),
    /** The world ranks whose output is shown; undefined: all. */
    ranks: values.ranks,
    /** The local ranks whose output is shown; undefined: all. */
    localRanks: values['local-ranks-filter'],
    /** The destination of each stream by local rank; undefined: the console and the log folder, if any. */
    destinations: destinationsOf(values),
    /** Lines that contain one of these texts also go to a file that all ranks share. */
    filters: {
      stdout: textsOf(values['duplicate-stdout-filters']),
      stderr: textsOf(values['duplicate-stderr-filters']),
    },
    summary: values.summary,
  }
}

/** Whether the options require log files, even without `--log-dir`. */
export function needsFiles({ destinations, filters }: OutputOptions): boolean {
  return destinations !== undefined || filters.stdout.length + filters.stderr.length > 0
}

function readPrefix({ value, source }: Setting): string {
  const problem = templateProblem(value)
  if (problem !== undefined) throw usageError(`${source}: ${problem}`)
  return value
}

function eventLogOf(values: Values) {
  const file = values['event-log']
  if (file !== undefined) return { file }
  return values['event-log-handler'] === 'console' ? ('console' as const) : undefined
}

function dashboardOf({ dashboard: port, 'dashboard-linger': linger }: Values, settings: Settings) {
  if (port !== undefined) {
    return {
      /** The port of the dashboard; 0: any free port. */
      port,
      /**
       * Milliseconds for which the dashboard stays open after the job. Undefined: until Ctrl-C, but only
       * if the job failed and stdin is a terminal.
       */
      linger,
    }
  }
  refuse(settings['dashboard-linger'], '--dashboard PORT')
  return undefined
}

function traceOf(
  { trace: directory, 'trace-steps': steps, 'trace-max-size': bytes }: Values,
  settings: Settings,
) {
  if (directory !== undefined) {
    return {
      directory,
      /** A range for `parseStepRange`; undefined: all steps. */
      steps,
      /** Approximate limit in bytes per rank, above which old spans are dropped. */
      bytes: Math.round(bytes),
    }
  }
  refuse(settings['trace-steps'], '--trace DIR')
  return undefined
}

function refuse(setting: Setting | undefined, needed: string): void {
  if (setting !== undefined) throw usageError(`${setting.source} needs ${needed}`)
}

function destinationsOf({ redirects, tee }: Values) {
  if (redirects === undefined && tee === undefined) return undefined
  return (localRank: number) => {
    const [redirected, both] = [redirects?.(localRank) ?? 0, tee?.(localRank) ?? 0]
    const destinationOf = (bit: number) => ({
      isShown: (redirected & bit) === 0 || (both & bit) !== 0,
      isWritten: ((redirected | both) & bit) !== 0,
    })
    return { stdout: destinationOf(1), stderr: destinationOf(2) }
  }
}

function textsOf(list = ''): string[] {
  return list.split(',').filter((text) => text !== '')
}
