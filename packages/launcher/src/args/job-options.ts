import { readHosts, type HostOptions } from './host-options.ts'
import { parseRankList } from './rank-list.ts'
import { read, readInteger, readSeconds, readSwitch, toInteger, usage, wrong } from './reading.ts'
import type { Setting, Settings } from './settings.ts'

const LARGEST_NPROC = 4096
const logFormats = ['pretty', 'json', 'raw'] as const
export type LogFormat = (typeof logFormats)[number]

/** Everything a job needs to know, checked and complete. */
export interface JobOptions extends HostOptions {
  /** Ranks on this host. */
  readonly nproc: number
  readonly maxRestarts: number
  /** Milliseconds between SIGTERM and SIGKILL. */
  readonly grace: number
  readonly logDir: string | undefined
  readonly logFormat: LogFormat
  /** The ranks whose output reaches the console; undefined: all. */
  readonly ranks: ReadonlySet<number> | undefined
  readonly summary: boolean
  readonly dryRun: boolean
  readonly script: string
  readonly scriptArguments: readonly string[]
}

/**
 * Checks the settings, once and for all.
 *
 * @param cores - what `--nproc auto` means here
 * @throws ERR_TSR_USAGE
 */
export function toJobOptions(
  settings: Settings,
  command: readonly string[],
  cores: number,
): JobOptions {
  const [script, ...scriptArguments] = command
  if (script === undefined) throw usage('No script given: tsrun [flags] script [arguments]')
  const nproc = readNproc(settings, cores)
  return {
    nproc,
    ...readHosts(settings, nproc),
    maxRestarts: readInteger(settings, 'max-restarts', 0, 1_000_000),
    grace: read(settings, 'grace', 'a number of seconds from 0 to 86400', readSeconds) * 1000,
    logDir: settings['log-dir']?.value,
    logFormat: read(settings, 'log-format', 'pretty, json or raw', (text) =>
      logFormats.find((format) => format === text),
    ),
    ranks: readRanks(settings.ranks),
    summary: readSwitch(settings, 'summary'),
    dryRun: readSwitch(settings, 'dry-run'),
    script,
    scriptArguments,
  }
}

function readNproc(settings: Settings, cores: number): number {
  const limit = `an integer from 1 to ${LARGEST_NPROC}, or auto`
  return read(settings, 'nproc', limit, (text) =>
    text === 'auto' ? cores : toInteger(text, 1, LARGEST_NPROC),
  )
}

function readRanks(setting: Setting | undefined): Set<number> | undefined {
  if (setting === undefined) return undefined
  const ranks = parseRankList(setting.value)
  if (ranks === undefined) throw wrong(setting, 'ranks and ranges of ranks, for example 0,2-3')
  return ranks
}

/**
 * Checks `--ranks` once the size of the job is known.
 *
 * @throws ERR_TSR_USAGE
 */
export function checkRanks({ ranks }: JobOptions, worldSize: number): void {
  const highest = Math.max(...(ranks ?? []))
  if (highest < worldSize) return
  const range = worldSize === 1 ? 'only rank 0' : `ranks 0 to ${worldSize - 1}`
  throw usage(`--ranks names rank ${highest}, but this job has ${range}`)
}
