import type { Values } from './flags.ts'
import { templateProblem } from './log-prefix.ts'
import { usageError, type Setting } from './readers.ts'
import type { Settings } from './settings.ts'

export type LogFormat = Values['log-format']

/** Where one stream of a rank goes. */
export interface Destination {
  readonly isShown: boolean
  readonly isWritten: boolean
}

/** Where and how long the dashboard is served. */
export interface DashboardOptions {
  /** 0: any free port. */
  readonly port: number
  /**
   * Milliseconds for which the dashboard stays open after the job. Undefined: until Ctrl-C, but only if
   * the job failed and stdin is a terminal.
   */
  readonly linger: number | undefined
}

/** Where metrics are served. */
export interface MetricsOptions {
  /** The name or address at which to listen. */
  readonly host: string
  /** 0: any free port. */
  readonly port: number
  /** The flag or variable and its value, for error messages. */
  readonly source: string
}

/** Options for recording the steps of ranks, for `--trace` and the dashboard. */
export interface TraceOptions {
  readonly directory: string
  /** A range for `parseStepRange`; undefined: all steps. */
  readonly steps: string | undefined
  /** Approximate limit in bytes per rank, above which old spans are dropped. */
  readonly bytes: number
}

/** The options for the output of ranks and for observing a job. */
export interface OutputOptions {
  /** The folder of log files. */
  readonly directory: string | undefined
  /** The folder that keeps the output of the last jobs, without `directory`. */
  readonly kept?: string | undefined
  /** Bytes of output after which the log files of a rank are rotated; undefined: never. */
  readonly logMaxSize: number | undefined
  readonly format: LogFormat
  /** The template for the prefix of lines; undefined: `[rank 3] `. */
  readonly prefix: string | undefined
  /** The file for the events of the job, or stderr (`console`); undefined: events are not written. */
  readonly eventLog: { readonly file: string } | 'console' | undefined
  readonly dashboard: DashboardOptions | undefined
  readonly metrics: MetricsOptions | undefined
  readonly trace: TraceOptions | undefined
  /** The ranks of the job whose output is shown; undefined: all. */
  readonly ranks: ReadonlySet<number> | undefined
  /** The ranks of each host whose output is shown; undefined: all. */
  readonly localRanks: ReadonlySet<number> | undefined
  /** The destination of each stream by local rank; undefined: the console and the log folder, if any. */
  readonly destinations:
    ((localRank: number) => Record<'stdout' | 'stderr', Destination>) | undefined
  /** Lines that contain one of these texts also go to a file that all ranks share. */
  readonly filters: Readonly<Record<'stdout' | 'stderr', readonly string[]>>
  readonly summary: boolean
}

/** @throws ERR_TSR_USAGE */
export function toOutput(values: Values, settings: Settings): OutputOptions {
  const prefix = settings['log-prefix'] ?? settings['log-line-prefix-template']
  return {
    directory: values['log-dir'],
    logMaxSize: values['log-max-size'],
    format: values['log-format'],
    prefix: prefix && readPrefix(prefix),
    eventLog: eventLogOf(values),
    dashboard: dashboardOf(values, settings),
    metrics: metricsOf(values, settings),
    trace: traceOf(values, settings),
    ranks: values.ranks,
    localRanks: values['local-ranks-filter'],
    destinations: destinationsOf(values),
    filters: {
      stdout: textsOf(values['duplicate-stdout-filters']),
      stderr: textsOf(values['duplicate-stderr-filters']),
    },
    summary: values.summary,
  }
}

/** Whether options need log files, even without `--log-dir`. */
export function needsFiles({ destinations, filters }: OutputOptions): boolean {
  return destinations !== undefined || filters.stdout.length + filters.stderr.length > 0
}

/** @throws ERR_TSR_USAGE for a template with unknown placeholders */
export function readPrefix({ value, source }: Setting): string {
  const problem = templateProblem(value)
  if (problem !== undefined) throw usageError(`${source}: ${problem}`)
  return value
}

function eventLogOf(values: Values): OutputOptions['eventLog'] {
  const file = values['event-log']
  if (file !== undefined) return { file }
  return values['event-log-handler'] === 'console' ? 'console' : undefined
}

function dashboardOf(
  { dashboard: port, 'dashboard-linger': linger }: Values,
  settings: Settings,
): DashboardOptions | undefined {
  if (port !== undefined) return { port, linger }
  refuse(settings['dashboard-linger'], '--dashboard PORT')
  return undefined
}

function metricsOf({ metrics }: Values, settings: Settings): MetricsOptions | undefined {
  if (metrics === undefined) return undefined
  const { source, value } = settings.metrics!
  return { ...metrics, source: `${source} ${value.trim()}` }
}

function traceOf(
  { trace: directory, 'trace-steps': steps, 'trace-max-size': bytes }: Values,
  settings: Settings,
): TraceOptions | undefined {
  if (directory !== undefined) return { directory, steps, bytes: Math.round(bytes) }
  refuse(settings['trace-steps'], '--trace DIR')
  return undefined
}

/** @throws ERR_TSR_USAGE if a setting is given without the setting that it needs */
function refuse(setting: Setting | undefined, needed: string): void {
  if (setting !== undefined) throw usageError(`${setting.source} needs ${needed}`)
}

function destinationsOf({ redirects, tee }: Values): OutputOptions['destinations'] {
  if (redirects === undefined && tee === undefined) return undefined
  return (localRank) => {
    const [redirected, both] = [redirects?.(localRank) ?? 0, tee?.(localRank) ?? 0]
    const destinationOf = (bit: number): Destination => ({
      isShown: (redirected & bit) === 0 || (both & bit) !== 0,
      isWritten: ((redirected | both) & bit) !== 0,
    })
    return { stdout: destinationOf(1), stderr: destinationOf(2) }
  }
}

function textsOf(list = ''): string[] {
  return list.split(',').filter((text) => text !== '')
}
