import type { Values } from './flags.ts'
import { HIGHEST_PORT, inspectorFrom, readSetting, usageError } from './readers.ts'
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

/** The port at which Node and the tools for it expect a debugger. */
const INSPECTOR_PORT = 9229

/** @param nproc - the number of ranks on this host @throws ERR_TSR_USAGE */
export function toRankOptions(
  values: Values,
  settings: Settings,
  kind: 'file' | 'module' | 'program',
  nproc: number,
): RankOptions {
  const options: RankOptions = {
    nodeArguments: nodeArgumentsOf(values),
    inspect: inspectOf(values, settings, nproc),
    cpuProf: values['cpu-prof'],
    heapProf: values['heap-prof'],
    chaos: values.chaos,
    jobTimeout: values['job-timeout'],
    stdin: values.stdin,
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

function nodeArgumentsOf({ 'node-args': words = [] }: Values): readonly string[] {
  const other = words.find((word) => !word.startsWith('-'))
  // Node takes the first word that is no option of its own, nor the value of one, as the script.
  if (words[0] === other && other !== undefined) {
    throw usageError(`--node-args begins with ${other}, which is no option of Node`)
  }
  return words
}

function inspectOf(
  { 'inspect-rank': rank }: Values,
  { inspect }: Settings,
  nproc: number,
): InspectOptions | undefined {
  if (inspect === undefined) {
    return rank === undefined ? undefined : { host: '127.0.0.1', port: INSPECTOR_PORT, rank }
  }
  const highest = rank === undefined ? HIGHEST_PORT + 1 - nproc : HIGHEST_PORT
  return { ...readSetting(inspect, inspectorFrom(highest)), rank }
}
