import { parseStepRange, STEP_RANGE } from '@tsrun/distributed/record'
import { templateProblem } from './log-prefix.ts'
import { read, readSeconds, toInteger, usageError } from './read-setting.ts'
import type { Settings } from './settings.ts'

const logFormats = ['pretty', 'json', 'raw'] as const
export type LogFormat = (typeof logFormats)[number]

/** Where one stream of a rank goes. */
export interface Destination {
  readonly isShown: boolean
  readonly isWritten: boolean
}

/** Where the dashboard is. */
export interface DashboardOptions {
  /** 0: any free port. */
  readonly port: number
  /** Milliseconds that it stays open after the end of the job; undefined: until Ctrl-C after a failure at a terminal. */
  readonly linger: number | undefined
}

/** Where metrics are served. */
export interface MetricsOptions {
  /** Where to listen, by name or address. */
  readonly host: string
  /** 0: any free port. */
  readonly port: number
  /** The option as it was given, for errors. */
  readonly source: string
}

/** What is recorded of the ranks' steps. */
export interface TraceOptions {
  readonly directory: string
  /** As `parseStepRange` reads it; undefined: all steps. */
  readonly steps: string | undefined
  /** Of each rank, the newest spans alone, in about so many bytes; undefined: all. */
  readonly bytes: number | undefined
}

/** The options about what ranks print, and about what shows it. */
export interface OutputOptions {
  readonly logDir: string | undefined
  readonly logFormat: LogFormat
  /** The template for the prefix of lines; undefined: `[rank 3] `. */
  readonly logPrefix: string | undefined
  /** The file for the events of the job, or the standard error; undefined: they are not written. */
  readonly eventLog: { readonly file: string } | 'console' | undefined
  readonly dashboard: DashboardOptions | undefined
  readonly metrics: MetricsOptions | undefined
  readonly trace: TraceOptions | undefined
  /** The ranks of the job whose output is shown; undefined: all. */
  readonly ranks: ReadonlySet<number> | undefined
  /** The ranks of each host whose output is shown; undefined: all. */
  readonly localRanks: ReadonlySet<number> | undefined
  /** Of stdout and stderr, by local rank; undefined: shown and, with a log folder, written. */
  readonly destinations:
    ((localRank: number) => Record<'stdout' | 'stderr', Destination>) | undefined
  /** The texts whose lines go to a file of all ranks as well. */
  readonly filters: Readonly<Record<'stdout' | 'stderr', readonly string[]>>
}

/** @throws ERR_TSR_USAGE */
export function readOutput(settings: Settings): OutputOptions {
  return {
    logDir: settings['log-dir']?.value,
    logFormat: read(settings, 'log-format', logFormatNames, parseLogFormat),
    logPrefix: readPrefix(settings),
    eventLog: readEventLog(settings),
    dashboard: readDashboard(settings),
    metrics: readMetrics(settings),
    trace: readTrace(settings),
    ranks: readRanks(settings, 'ranks'),
    localRanks: readRanks(settings, 'local-ranks-filter'),
    destinations: readDestinations(settings),
    filters: {
      stdout: readTexts(settings, 'duplicate-stdout-filters'),
      stderr: readTexts(settings, 'duplicate-stderr-filters'),
    },
  }
}

/** Whether options need files although no folder is named for them. */
export function needsFiles({ destinations, filters }: OutputOptions): boolean {
  return destinations !== undefined || filters.stdout.length + filters.stderr.length > 0
}

export const logFormatNames = 'pretty, json or raw'

/** Undefined for any other text. */
export function parseLogFormat(text: string): LogFormat | undefined {
  return logFormats.find((format) => format === text)
}

function readPrefix(settings: Settings): string | undefined {
  const setting = settings['log-prefix']
  const problem = setting === undefined ? undefined : templateProblem(setting.value)
  if (problem !== undefined) throw usageError(`${setting!.source}: ${problem}`)
  return setting?.value
}

function readEventLog(settings: Settings): OutputOptions['eventLog'] {
  const file = settings['event-log']?.value
  if (file !== undefined) return { file }
  if (settings['event-log-handler'] === undefined) return undefined
  const expected = 'null or console; --event-log FILE names a file'
  const handler = read(settings, 'event-log-handler', expected, (text) =>
    text === 'null' || text === 'console' ? text : undefined,
  )
  return handler === 'console' ? 'console' : undefined
}

function readDashboard(settings: Settings): DashboardOptions | undefined {
  const { dashboard, 'dashboard-linger': linger } = settings
  if (dashboard === undefined) {
    if (linger === undefined) return undefined
    throw usageError(`${linger.source} needs --dashboard PORT`)
  }
  const expected = 'a number of seconds from 0 to 86400'
  return {
    port: read(settings, 'dashboard', 'a port from 0 to 65535', (text) =>
      toInteger(text, 0, 65535),
    ),
    linger:
      linger === undefined
        ? undefined
        : 1000 * read(settings, 'dashboard-linger', expected, readSeconds),
  }
}

function readMetrics(settings: Settings): MetricsOptions | undefined {
  const { metrics } = settings
  if (metrics === undefined) return undefined
  const expected = '[HOST:]PORT, for example 9400, 0.0.0.0:9400 or [::1]:9400'
  return read(settings, 'metrics', expected, (text) => {
    const [, address, name = '127.0.0.1', digits = ''] =
      /^(?:\[([\da-f:.]+)\]:|([^\s:/[\]]+):)?(\d+)$/i.exec(text) ?? []
    const port = toInteger(digits, 0, 65535)
    const source = `${metrics.source} ${text}`
    return port === undefined ? undefined : { host: address ?? name, port, source }
  })
}

function readTrace(settings: Settings): TraceOptions | undefined {
  const { trace, 'trace-steps': steps } = settings
  if (trace === undefined || trace.value === '') {
    if (steps === undefined) return undefined
    throw usageError(`${steps.source} needs --trace DIR`)
  }
  const range = (text: string): string | undefined =>
    parseStepRange(text) === undefined ? undefined : text
  return {
    directory: trace.value,
    steps: steps && read(settings, 'trace-steps', STEP_RANGE, range),
    bytes: undefined,
  }
}

function readRanks(
  settings: Settings,
  name: 'ranks' | 'local-ranks-filter',
): Set<number> | undefined {
  if (settings[name] === undefined || settings[name].value === '') return undefined
  return read(settings, name, 'ranks and ranges of ranks, for example 0,2-3', parseRankList)
}

/** Reads `0,2-3` as the set of 0, 2 and 3; undefined when it is no such list. */
export function parseRankList(text: string): Set<number> | undefined {
  const ranks = new Set<number>()
  for (const part of text.split(',')) {
    const match = /^\s*(\d{1,6})(?:-(\d{1,6}))?\s*$/.exec(part)
    if (match === null) return undefined
    const first = Number(match[1])
    const last = Number(match[2] ?? match[1])
    if (last < first) return undefined
    for (let rank = first; rank <= last; rank++) ranks.add(rank)
  }
  return ranks
}

/**
 * Checks `--ranks` once the size of the job is known.
 *
 * @throws ERR_TSR_USAGE
 */
export function checkRanks({ ranks }: Pick<OutputOptions, 'ranks'>, worldSize: number): void {
  const highest = Math.max(...(ranks ?? []))
  if (highest < worldSize) return
  const range = worldSize === 1 ? 'only rank 0' : `ranks 0 to ${worldSize - 1}`
  throw usageError(`--ranks names rank ${highest}, but this job has ${range}`)
}

/** Bit 0 stands for stdout, and bit 1 for stderr. */
type Streams = (localRank: number) => number

function readDestinations(settings: Settings): OutputOptions['destinations'] {
  const [redirects, tee] = [readStreams(settings, 'redirects'), readStreams(settings, 'tee')]
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

/** `3` for all ranks, or `0:1,1:3` by local rank. */
function readStreams(settings: Settings, name: 'redirects' | 'tee'): Streams | undefined {
  const setting = settings[name]
  if (setting === undefined || setting.value === '0') return undefined
  return read(settings, name, '0 to 3, or such numbers by local rank, as in 0:1,1:3', (text) => {
    if (/^[0-3]$/.test(text)) return () => Number(text)
    const pairs = text.split(',').map((pair) => /^\s*(\d{1,6}):([0-3])\s*$/.exec(pair))
    if (pairs.includes(null)) return undefined
    const map = new Map(pairs.map((pair) => [Number(pair![1]), Number(pair![2])]))
    return (localRank) => map.get(localRank) ?? 0
  })
}

function readTexts(
  settings: Settings,
  name: 'duplicate-stdout-filters' | 'duplicate-stderr-filters',
): string[] {
  return (settings[name]?.value ?? '').split(',').filter((text) => text !== '')
}
