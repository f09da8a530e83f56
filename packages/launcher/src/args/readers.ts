import { constants } from 'node:os'
import {
  isTsrError,
  messageOf,
  parsePortRange,
  type Schema,
  text,
  tsrError,
  type TsrError,
  written,
} from '@tsrun/core'
import { parseStepRange, STEP_RANGE } from '@tsrun/distributed/record'

export const HIGHEST_PORT = 65_535
const MOST_PROCESSES = 4096
const HIGHEST_RANK = 1_000_000
const LOOPBACK = '127.0.0.1'

/** A value and its source: `--nproc`, `TSRUN_NPROC`, `PET_NPROC_PER_NODE`, `SLURM_NNODES` or `default`. */
export interface Setting {
  readonly value: string
  readonly source: string
}

export function readSetting<T>({ value, source }: Setting, of: Schema<T>): T {
  return of.read(value.trim(), (_, expected) =>
    usageError(`${source} is ${JSON.stringify(value)}; expected ${expected}`),
  )
}

/** @returns ERR_TSR_USAGE */
export function usageError(problem: string, cause?: unknown): TsrError {
  return tsrError('ERR_TSR_USAGE', { problem }, { cause })
}

/** The reason for an error. Omits the advice, which is meant for callers of a function. */
export function reasonOf(error: unknown): string {
  if (!isTsrError(error) || error.code !== 'ERR_TSR_ARGUMENT') {
    return messageOf(error).split(/\.?\n|:\n/, 1)[0]!
  }
  const { name, value, expected } = error.facts
  return `${String(name)} is ${String(value)}; expected ${String(expected)}`
}

/** Reads an integer within the limits; undefined for any other text. */
function toInteger(digits: string, lowest: number, highest: number): number | undefined {
  const value = /^\d+$/.test(digits) ? Number(digits) : NaN
  return value >= lowest && value <= highest ? value : undefined
}

export function integerFrom(
  lowest: number,
  highest: number,
  expected = `an integer from ${lowest} to ${highest}`,
): Schema<number> {
  return written(expected, (digits) => toInteger(digits, lowest, highest))
}

export const port = integerFrom(0, HIGHEST_PORT, 'a port from 0 to 65535')
export const rankNumber = integerFrom(0, HIGHEST_RANK, 'the number of a rank')

/** Reads one of the given words, or passes any other text to `other`. */
export function wordOf<const W extends string, T = never>(
  expected: string,
  choices: readonly W[],
  other: (text: string) => T | undefined = () => undefined,
): Schema<W | T> {
  return written(expected, (word) => choices.find((choice) => choice === word) ?? other(word))
}

export const processes = wordOf(
  `an integer from 1 to ${MOST_PROCESSES}, auto, gpu or cpu`,
  ['auto', 'gpu', 'cpu'],
  (digits) => toInteger(digits, 1, MOST_PROCESSES),
)

export const input = wordOf('the number of a rank, all or none', ['all', 'none'], (digits) =>
  toInteger(digits, 0, HIGHEST_RANK),
)

export const logFormat = wordOf('pretty, json or raw', ['pretty', 'json', 'raw'])
export const backend = wordOf(
  'c10d or static, as hosts need no service beside the store of node 0',
  ['c10d', 'static'],
)
export const startMethod = wordOf('spawn: each rank is a process of its own', ['spawn'])
export const logsSpecs = wordOf('default: --log-dir, --redirects and --tee say where output goes', [
  'default',
])
export const eventHandler = wordOf('null or console; --event-log FILE names a file', [
  'null',
  'console',
])
export const binding = wordOf('one of core, numa, none', ['core', 'numa', 'none'])

export const numaBinding = wordOf('one of node, socket, exclusive, core-complex', [
  'node',
  'socket',
  'exclusive',
  'core-complex',
])

const units: Readonly<Record<string, number>> = { ms: 1, s: 1e3, m: 6e4, h: 36e5, d: 864e5 }

/** Reads `10`, `0.5`, `30s` or `10m` as milliseconds. @param most - the longest time in seconds */
function seconds(range: string, isAllowed: (time: number) => boolean = () => true, most = 86_400) {
  return written(`a number of seconds${range}, or a time such as 250ms, 10m or 2h`, (word) => {
    const [, digits, unit = 's'] = /^(\d+|\d*\.\d+)(ms|[smhd])?$/.exec(word) ?? []
    const time = digits === undefined ? NaN : Number(digits) * units[unit]!
    return time <= most * 1000 && isAllowed(time) ? time : undefined
  })
}

export const anyTime = seconds('')
export const time = seconds(' from 0 to 86400')
export const timeout = seconds(' above 0, up to 86400', isPositive)
/** The maximum is below the limit of Node's timers, 2^31 - 1 milliseconds. */
export const jobTimeout = seconds(' above 0, up to 2000000', isPositive, 2_000_000)

function isPositive(value: number): boolean {
  return value > 0
}

/** Reads `4`, or `2:4` as a range. */
export const hosts = written(
  `an integer from 1 to ${MOST_PROCESSES}, or a range as in 2:4`,
  (range) => {
    const [, first = '', last = first] = /^(\d+)(?::(\d+))?$/.exec(range) ?? []
    const most = toInteger(last, 1, MOST_PROCESSES)
    const least = most === undefined ? undefined : toInteger(first, 1, most)
    return least === undefined ? undefined : { minNodes: least, nnodes: most! }
  },
)

/** Reads `node0`, `node0:29500`, `10.0.0.1:29500`, `[fd00::1]:29500`. */
export const endpoint = written('HOST:PORT, for example node0:29500', (place) => {
  const [, address, host = address, digits] =
    /^(?:\[([0-9a-f:.%]+)\]|([^\s:[\]/]+))(?::(\d{1,5}))?$/i.exec(place) ?? []
  if (host === undefined) return undefined
  if (digits === undefined) return { host, port: undefined }
  return atPort(host, toInteger(digits, 0, HIGHEST_PORT))
})

export const metricsAddress = written(
  '[HOST:]PORT, for example 9400, 0.0.0.0:9400 or [::1]:9400',
  (place) => {
    const [, address, name = LOOPBACK, digits = ''] =
      /^(?:\[([\da-f:.]+)\]:|([^\s:/[\]]+):)?(\d+)$/i.exec(place) ?? []
    return atPort(address ?? name, toInteger(digits, 0, HIGHEST_PORT))
  },
)

/** Reads the address at which ranks listen for a debugger; `auto` means any free port. */
export function inspectorFrom(highest: number) {
  const expected = `a port from 1 to ${highest} or auto, with the address of this host and a colon before it or not`
  return written(expected, (place) => {
    const [, host = LOOPBACK, digits = ''] = /^(?:(\[[^\]]+\]|[^:]+):)?([^:]*)$/.exec(place) ?? []
    return digits === 'auto'
      ? { host, port: undefined }
      : atPort(host, toInteger(digits, 1, highest))
  })
}

function atPort(host: string, port: number | undefined) {
  return port === undefined ? undefined : { host, port }
}

/** Reads the ports of the ranks, such as `29600-29699`. */
export const portRange = written('two ports, for example 29600-29699', parsePortRange)
export const stepRange = text.refine((range) => parseStepRange(range) !== undefined, STEP_RANGE)
export const jobName = text.refine(
  (name) => /^[\w.-]{1,100}$/.test(name),
  'up to 100 letters, digits and . _ -',
)

const impossible = ['SIGKILL', 'SIGSTOP']

export const signals = written(
  'names of signals, for example SIGTERM,SIGUSR1, but not SIGKILL or SIGSTOP',
  (list) => {
    const names = list.split(',').map((name) => name.trim().toUpperCase())
    const isValid = names.every((name) => name in constants.signals && !impossible.includes(name))
    return isValid ? (names as NodeJS.Signals[]) : undefined
  },
)

/** Parses `0,2-3` as a set; undefined for a malformed list. */
export function parseRankList(list: string): Set<number> | undefined {
  const ranks = new Set<number>()
  for (const part of list.split(',')) {
    const match = /^\s*(\d{1,6})(?:-(\d{1,6}))?\s*$/.exec(part)
    if (match === null) return undefined
    const first = Number(match[1])
    const last = Number(match[2] ?? match[1])
    if (last < first) return undefined
    for (let rank = first; rank <= last; rank++) ranks.add(rank)
  }
  return ranks
}

export const rankList = written('ranks and ranges of ranks, for example 0,2-3', parseRankList)

/** A bit mask for each local rank: bit 0 is stdout, and bit 1 is stderr. */
type Streams = (localRank: number) => number

/** Reads `3` for all ranks, or `0:1,1:3` by local rank. */
export const streams = written<Streams>(
  '0 to 3, or such numbers by local rank, as in 0:1,1:3',
  (map) => {
    if (/^[0-3]$/.test(map)) return () => Number(map)
    const pairs = map.split(',').map((pair) => /^\s*(\d{1,6}):([0-3])\s*$/.exec(pair))
    if (pairs.includes(null)) return undefined
    const numbers = new Map(pairs.map((pair) => [Number(pair![1]), Number(pair![2])]))
    return (localRank) => numbers.get(localRank) ?? 0
  },
)

/** A word of a command line, with quoted and escaped parts. */
const WORD = /(?:[^\s'"\\]|\\[\s\S]|'[^']*'|"(?:[^"\\]|\\[\s\S])*")+/g

/**
 * Splits a text like a shell, at blanks that are neither quoted nor escaped. Expands nothing. Undefined if
 * a quotation mark is not closed.
 */
export function splitWords(line: string): string[] | undefined {
  if (line.replaceAll(WORD, '').trim() !== '') return undefined
  const words = line.match(WORD) ?? []
  return words.map((word) =>
    word.replaceAll(
      /'([^']*)'|"((?:[^"\\]|\\[\s\S])*)"|\\([\s\S])/g,
      (_, single?: string, double?: string, escaped?: string) =>
        single ?? double?.replaceAll(/\\(["\\$`])/g, '$1') ?? escaped!,
    ),
  )
}

/** Quotes a text for a POSIX shell, if necessary. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}

export const words = written(
  'arguments as in a shell, with every quotation mark closed',
  splitWords,
)

const prefixes = ['', 'K', 'M', 'G', 'T', 'P']

interface Measure {
  readonly expected: string
  readonly factors: Readonly<Record<string, number>>
}

const measures: Readonly<Record<'count' | 'bytes' | 'bytes/s', Measure>> = {
  count: { expected: 'a number from 1, as in 10B, 7.5M or 1e12', factors: { '': 1 } },
  bytes: { expected: 'a size, as in 24GB or 24GiB', factors: { '': 1, B: 1 } },
  'bytes/s': {
    expected: 'bytes in a second, as in 10GB/s or 100Gbit/s',
    factors: { '': 1, 'B/s': 1, 'bit/s': 1 / 8 },
  },
}

/** Reads `10B` (a count, where `B` means 10^9), `24GB` or `24GiB`, `10GB/s` or `100Gbit/s`. */
export function quantity(what: keyof typeof measures): Schema<number> {
  const { expected, factors } = measures[what]
  return written(expected, (given) => {
    const text = what === 'count' ? given.replace(/B$/, 'G') : given
    const [, digits, prefix = '', binary, unit = ''] =
      /^(\d+(?:\.\d+)?(?:e\d+)?)\s*([KMGTP]?)(i?)(.*)$/i.exec(text) ?? []
    const power = prefixes.indexOf(prefix.toUpperCase())
    const factor = factors[unit] ?? NaN
    // Only multiples of bytes and bits have binary prefixes.
    if (binary !== '' && (prefix === '' || unit === '')) return undefined
    const value = Number(digits) * (binary === '' ? 1000 : 1024) ** power * factor
    return value > 0 && value < Infinity ? value : undefined
  })
}
