import { tsrError } from '@tsrun/core'
import type { FlagName } from './flags.ts'
import { parseRankList } from './rank-list.ts'
import type { Setting, Settings } from './settings.ts'

const LARGEST_NPROC = 4096
const logFormats = ['pretty', 'json', 'raw'] as const
export type LogFormat = (typeof logFormats)[number]

/** Everything a job needs to know, checked and complete. */
export interface JobOptions {
  readonly nproc: number
  readonly masterAddr: string
  /** 0: the kernel picks one. */
  readonly masterPort: number
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
    masterAddr: read(
      settings,
      'master-addr',
      'a host name or address',
      (text) => text || undefined,
    ),
    masterPort: readInteger(settings, 'master-port', 0, 65535),
    maxRestarts: readInteger(settings, 'max-restarts', 0, 1_000_000),
    grace: read(settings, 'grace', 'a number of seconds from 0 to 86400', readSeconds) * 1000,
    logDir: settings['log-dir']?.value,
    logFormat: read(settings, 'log-format', 'pretty, json or raw', (text) =>
      logFormats.find((format) => format === text),
    ),
    ranks: readRanks(settings.ranks, nproc),
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

function readRanks(setting: Setting | undefined, nproc: number): Set<number> | undefined {
  if (setting === undefined) return undefined
  const ranks = parseRankList(setting.value)
  if (ranks === undefined) throw wrong(setting, 'ranks and ranges of ranks, for example 0,2-3')
  const highest = Math.max(...ranks)
  if (highest >= nproc) {
    const range = nproc === 1 ? 'only rank 0' : `ranks 0 to ${nproc - 1}`
    throw usage(`${setting.source} names rank ${highest}, but this job has ${range}`)
  }
  return ranks
}

function readInteger(settings: Settings, name: FlagName, lowest: number, highest: number): number {
  return read(settings, name, `an integer from ${lowest} to ${highest}`, (text) =>
    toInteger(text, lowest, highest),
  )
}

function readSwitch(settings: Settings, name: FlagName): boolean {
  return read(settings, name, 'true or false', (text) => {
    if (/^(true|1|yes|on)$/i.test(text)) return true
    return /^(false|0|no|off)$/i.test(text) ? false : undefined
  })
}

/** Reads the setting with `parse`, which returns undefined for what it does not accept. */
function read<T>(
  settings: Settings,
  name: FlagName,
  expected: string,
  parse: (text: string) => T | undefined,
): T {
  const setting = settings[name] ?? { value: '', source: `--${name}` }
  const value = parse(setting.value.trim())
  if (value === undefined) throw wrong(setting, expected)
  return value
}

function toInteger(text: string, lowest: number, highest: number): number | undefined {
  const value = /^\d+$/.test(text) ? Number(text) : NaN
  return value >= lowest && value <= highest ? value : undefined
}

function readSeconds(text: string): number | undefined {
  const value = /^(\d+|\d*\.\d+)s?$/.test(text) ? parseFloat(text) : NaN
  return value <= 86_400 ? value : undefined
}

function wrong({ source, value }: Setting, expected: string): Error {
  return usage(`${source} is ${JSON.stringify(value)}; expected ${expected}`)
}

function usage(problem: string): Error {
  return tsrError('ERR_TSR_USAGE', { problem })
}
