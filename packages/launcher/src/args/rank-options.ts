import { read, readSeconds, readSwitch, toInteger, usageError } from './read-setting.ts'
import type { Settings } from './settings.ts'

/** Where ranks listen for a debugger. */
export interface InspectOptions {
  readonly host: string
  /** The port of the first rank of the host; undefined: any free ports. */
  readonly port: number | undefined
  /** The only rank that listens; it waits for the debugger. Undefined: all listen, and none waits. */
  readonly rank: number | undefined
}

/** The options for working with one rank. */
export interface RankOptions {
  /** More arguments of Node. */
  readonly nodeArguments: readonly string[]
  readonly inspect: InspectOptions | undefined
  readonly cpuProf: boolean
  readonly heapProf: boolean
  /** The file that says which faults ranks have. */
  readonly chaos: string | undefined
  /** Milliseconds after which the job is ended. */
  readonly jobTimeout: number | undefined
  /** The rank that gets the standard input of the launcher. */
  readonly stdin: number | 'all' | 'none'
}

/** What a job has without any of these flags, and without standard input. */
export const noRankOptions: RankOptions = {
  nodeArguments: [],
  inspect: undefined,
  cpuProf: false,
  heapProf: false,
  chaos: undefined,
  jobTimeout: undefined,
  stdin: 'none',
}

const HIGHEST_RANK = 1_000_000
const HIGHEST_PORT = 65_535
/** The port at which Node and the tools for it expect a debugger. */
const INSPECTOR_PORT = 9229

/** @param nproc - the number of ranks on this host @throws ERR_TSR_USAGE */
export function readRankOptions(
  settings: Settings,
  kind: 'file' | 'module' | 'program',
  nproc: number,
): RankOptions {
  const options: RankOptions = {
    nodeArguments: readNodeArguments(settings),
    inspect: readInspect(settings, nproc),
    cpuProf: readSwitch(settings, 'cpu-prof'),
    heapProf: readSwitch(settings, 'heap-prof'),
    chaos: settings.chaos?.value,
    jobTimeout: readJobTimeout(settings),
    stdin: readStdin(settings),
  }
  if (kind === 'program') refuseForPrograms(settings, options)
  return options
}

/** Whether options need the log folder although they are not about output. */
export function needsFolder({ cpuProf, heapProf }: RankOptions): boolean {
  return cpuProf || heapProf
}

/**
 * Checks the ranks that options name once the size of the job is known.
 *
 * @throws ERR_TSR_USAGE
 */
export function checkNamedRanks(
  { inspect, stdin }: Pick<RankOptions, 'inspect' | 'stdin'>,
  worldSize: number,
): void {
  const named = { '--inspect-rank': inspect?.rank, '--stdin': stdin }
  for (const [flag, rank] of Object.entries(named)) {
    if (typeof rank !== 'number' || rank < worldSize) continue
    const range = worldSize === 1 ? 'only rank 0' : `ranks 0 to ${worldSize - 1}`
    throw usageError(`${flag} names rank ${rank}, but this job has ${range}`)
  }
}

function refuseForPrograms(settings: Settings, { cpuProf, heapProf }: RankOptions): void {
  const given = (['node-args', 'inspect', 'inspect-rank'] as const).find(
    (name) => settings[name] !== undefined,
  )
  const name = given ?? (cpuProf ? 'cpu-prof' : heapProf ? 'heap-prof' : undefined)
  if (name === undefined) return
  const { source } = settings[name] ?? { source: `--${name}` }
  throw usageError(`${source} is for ranks that run Node; with --no-python they run any program`)
}

function readNodeArguments(settings: Settings): string[] {
  if (settings['node-args'] === undefined) return []
  const expected = 'arguments as in a shell, with every quotation mark closed'
  const words = read(settings, 'node-args', expected, splitWords)
  const other = words.find((word) => !word.startsWith('-'))
  // Node takes the first word that is no option of its own, nor the value of one, as the script.
  if (words[0] === other && other !== undefined) {
    throw usageError(`--node-args begins with ${other}, which is no option of Node`)
  }
  return words
}

/**
 * Splits a text into words as a shell does: at blanks that are neither quoted nor escaped. Nothing is
 * expanded. Undefined when a quotation mark is not closed.
 */
export function splitWords(text: string): string[] | undefined {
  const piece = /'([^']*)'|"((?:[^"\\]|\\[\s\S])*)"|\\([\s\S])|([^\s'"\\]+)|(\s+)/y
  const words: string[] = []
  let word: string | undefined
  while (piece.lastIndex < text.length) {
    const match = piece.exec(text)
    if (match === null) return undefined
    const [, single, double, escaped, plain, blanks] = match
    if (blanks === undefined) {
      word =
        (word ?? '') + (single ?? double?.replaceAll(/\\(["\\$`])/g, '$1') ?? escaped ?? plain!)
    } else if (word !== undefined) {
      words.push(word)
      word = undefined
    }
  }
  return word === undefined ? words : [...words, word]
}

function readInspect(settings: Settings, nproc: number): InspectOptions | undefined {
  const rank =
    settings['inspect-rank'] === undefined
      ? undefined
      : read(settings, 'inspect-rank', 'the number of a rank', (text) =>
          toInteger(text, 0, HIGHEST_RANK),
        )
  if (settings.inspect === undefined) {
    return rank === undefined ? undefined : { host: '127.0.0.1', port: INSPECTOR_PORT, rank }
  }
  const highest = rank === undefined ? HIGHEST_PORT + 1 - nproc : HIGHEST_PORT
  const expected = `a port from 1 to ${highest} or auto, with the address of this host and a colon before it or not`
  return read(settings, 'inspect', expected, (text) => {
    const [, host = '127.0.0.1', place = ''] = /^(?:(\[[^\]]+\]|[^:]+):)?([^:]*)$/.exec(text) ?? []
    if (place === 'auto') return { host, port: undefined, rank }
    const port = toInteger(place, 1, highest)
    return port === undefined ? undefined : { host, port, rank }
  })
}

function readJobTimeout(settings: Settings): number | undefined {
  if (settings['job-timeout'] === undefined) return undefined
  // A timer of Node has 31 bits of milliseconds, which is more than 24 days.
  const expected = 'a number of seconds above 0, up to 2000000 (23 days)'
  return read(settings, 'job-timeout', expected, (text) => {
    const seconds = readSeconds(text) ?? toInteger(text, 1, 2_000_000)
    return seconds === undefined || seconds === 0 ? undefined : seconds * 1000
  })
}

function readStdin(settings: Settings): RankOptions['stdin'] {
  return read(settings, 'stdin', 'the number of a rank, all or none', (text) =>
    text === 'all' || text === 'none' ? text : toInteger(text, 0, HIGHEST_RANK),
  )
}
