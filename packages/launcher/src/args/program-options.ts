import type { Values } from './flags.ts'
import { HIGHEST_PORT, inspectorFrom, readSetting, usageError } from './readers.ts'
import type { Settings } from './settings.ts'

/** Where ranks listen for a debugger. */
export type InspectOptions = NonNullable<ProgramOptions['inspect']>

/** What the ranks run. */
export type ProgramOptions = ReturnType<typeof toProgram>

/** Node's default port for debuggers. */
const INSPECTOR_PORT = 9229

/**
 * @param command - the script and its arguments
 * @param nproc - the number of ranks on this host
 * @throws ERR_TSR_USAGE
 */
export function toProgram(
  values: Values,
  settings: Settings,
  [script, ...scriptArguments]: readonly string[],
  nproc: number,
) {
  if (script === undefined)
    throw usageError(
      'No script given: tsrun [flags] script [arguments], or tsrun init for a new project',
    )
  const options = {
    /** Whether `script` is a file, a module of a package, or any program. */
    kind: kindOf(values),
    script,
    arguments: scriptArguments,
    /** Additional arguments of Node. */
    nodeArguments: nodeArgumentsOf(values),
    inspect: inspectOf(values, settings, nproc),
    /** The profiles that each rank writes into the folder of its log files. */
    profiles: (['cpu', 'heap'] as const).filter((kind) => values[`${kind}-prof`]),
    /** The file that lists the faults to inject. */
    chaos: values.chaos,
    /** The rank that gets the standard input of the launcher. */
    stdin: values.stdin,
  }
  if (options.kind === 'program') refuseForPrograms(settings, options)
  return options
}

function kindOf({ module, 'no-python': isProgram }: Values) {
  if (module && isProgram) throw usageError('--module and --no-python exclude each other')
  return module ? 'module' : isProgram ? 'program' : 'file'
}

function refuseForPrograms(settings: Settings, { profiles }: ProgramOptions): void {
  const name =
    (['node-args', 'inspect', 'inspect-rank'] as const).find((each) => settings[each]) ??
    profiles.map((kind) => `${kind}-prof` as const)[0]
  if (name === undefined) return
  const { source } = settings[name] ?? { source: `--${name}` }
  throw usageError(`${source} is for ranks that run Node; with --no-python they run any program`)
}

function nodeArgumentsOf({ 'node-args': words = [] }: Values): readonly string[] {
  const other = words.find((word) => !word.startsWith('-'))
  // Node would run a leading word without a dash as the script.
  if (words[0] === other && other !== undefined) {
    throw usageError(`--node-args begins with ${other}, which is no option of Node`)
  }
  return words
}

function inspectOf({ 'inspect-rank': rank }: Values, { inspect }: Settings, nproc: number) {
  if (inspect === undefined && rank === undefined) return undefined
  const highest = rank === undefined ? HIGHEST_PORT + 1 - nproc : HIGHEST_PORT
  return {
    /** The port of the first rank of the host. Undefined: each rank takes any free port. */
    ...(inspect === undefined
      ? { host: '127.0.0.1', port: INSPECTOR_PORT }
      : readSetting(inspect, inspectorFrom(highest))),
    /** The only rank that listens, and waits, for the debugger. Undefined: all listen, and none waits. */
    rank,
  }
}
