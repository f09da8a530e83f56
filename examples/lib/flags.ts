import { parseArgs } from 'node:util'
import { initProcessGroup, type InitOptions, type ProcessGroup } from '@tsrun/distributed'
import { wrap } from './output.ts'

/** A command-line flag. It takes a value, unless `fallback` is a boolean. */
export interface Flag<T> {
  readonly fallback: T
  /** What is expected, for the help; for a boolean, what the flag does. */
  readonly expected: string
  /** Returns undefined if `text` is not what is expected. */
  readonly read: (text: string) => T | undefined
}

export function count(fallback: number): Flag<number> {
  return {
    fallback,
    expected: 'a whole number from 1',
    read: (text) => (/^[1-9]\d{0,8}$/.test(text) ? Number(text) : undefined),
  }
}

export function integer(fallback: number): Flag<number> {
  return {
    fallback,
    expected: 'a whole number from 0',
    read: (text) => (/^\d{1,9}$/.test(text) ? Number(text) : undefined),
  }
}

export function positive(fallback: number): Flag<number> {
  return {
    fallback,
    expected: 'a number above 0',
    read: (text) => (Number(text) > 0 && Number(text) < Infinity ? Number(text) : undefined),
  }
}

export function choice<Name extends string>(
  names: readonly Name[],
  fallback: NoInfer<Name>,
): Flag<Name> {
  return {
    fallback,
    expected: `one of ${names.join(', ')}`,
    read: (text) => names.find((name) => name === text),
  }
}

export function text(fallback: string): Flag<string> {
  return { fallback, expected: 'a text', read: (given) => given }
}

/** A flag without a value: true if it is given. */
export function toggle(effect: string): Flag<boolean> {
  return { fallback: false, expected: effect, read: () => undefined }
}

/**
 * Reads the arguments of the script. `--help` prints them and ends the process. A wrong argument ends it
 * with exit code 2 and a message that says what is expected. In a job, only rank 0 prints.
 *
 * @param positional - how many of the first flags may also be given without their names
 */
export function readFlags<Flags extends Record<string, Flag<unknown>>>(
  flags: Flags,
  positional = 0,
): { [Name in keyof Flags]: Flags[Name]['fallback'] } {
  const typeOf = ({ fallback }: Flag<unknown>) =>
    typeof fallback === 'boolean' ? ('boolean' as const) : ('string' as const)
  const options = {
    help: { type: 'boolean' as const },
    ...Object.fromEntries(
      Object.entries(flags).map(([name, flag]) => [name, { type: typeOf(flag) }]),
    ),
  }
  let given: Record<string, string | boolean | undefined>
  try {
    const { values, positionals } = parseArgs({ options, allowPositionals: true })
    const [unexpected] = positionals.slice(positional)
    if (unexpected !== undefined) throw new Error(`Unexpected argument '${unexpected}'`)
    const names = Object.keys(flags)
    const unnamed = positionals.map((text, at) => [names[at]!, text] as const)
    given = { ...Object.fromEntries(unnamed), ...values }
  } catch (error) {
    return refuse((error as Error).message, flags)
  }
  if (given['help'] === true) {
    if (isFirst()) console.log(usage(flags))
    process.exit(0)
  }
  const read = Object.entries(flags).map(([name, flag]) => {
    const text = given[name]
    const value = typeof text === 'string' ? flag.read(text) : (text ?? flag.fallback)
    if (value === undefined) {
      refuse(`--${name} is ${JSON.stringify(text)}; expected ${flag.expected}`, flags)
    }
    return [name, value] as const
  })
  return Object.fromEntries(read) as { [Name in keyof Flags]: Flags[Name]['fallback'] }
}

function refuse(problem: string, flags: Record<string, Flag<unknown>>): never {
  endWith(`${problem}\n\n${usage(flags)}`)
}

/** Ends the process with exit code 2, as a wrong argument does. In a job, only rank 0 prints. */
export function endWith(problem: string): never {
  if (isFirst()) {
    console.error(problem)
  } else {
    // The first rank that fails ends the job. Wait, so that it is the one that prints the reason.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5000)
  }
  process.exit(2)
}

/** Whether this process is rank 0, or in no job. */
export function isFirst(): boolean {
  return (process.env['RANK'] ?? '0') === '0'
}

function usage(flags: Record<string, Flag<unknown>>): string {
  const lines = Object.entries(flags).map(([name, { expected, fallback }]) => {
    const otherwise =
      typeof fallback === 'boolean'
        ? ''
        : ` (default ${fallback === '' ? 'none' : String(fallback)})`
    return wrap(`${expected}${otherwise}`, `  --${name.padEnd(14)} `)
  })
  if (lines.length === 0) return 'The script takes no flags (those of tsrun go before the script).'
  return ['Flags of the script (those of tsrun go before the script):', ...lines].join('\n')
}

/** The flags among `names` whose values differ from the defaults, as on a command line. */
export function describeFlags<Name extends string>(
  flags: Readonly<Record<Name, Flag<unknown>>>,
  values: Readonly<Record<Name, unknown>>,
  names: readonly Name[],
): string {
  const changed = names.filter((name) => values[name] !== flags[name].fallback)
  return changed.map((name) => `--${name} ${String(values[name])}`).join(' ')
}

/** Without the flag, a variable determines the value: TSRUN_TRANSPORT, TSRUN_ENGINE or TSRUN_BACKEND. */
const UNSET = 'environment'

const transports = [UNSET, 'auto', 'shared-memory', 'tcp', 'node', 'mpi'] as const
const engines = [UNSET, 'auto', 'worker', 'inline'] as const
const devices = [UNSET, 'auto', 'wasm', 'cpu', 'tensorflow', 'webgpu'] as const
const overlaps = ['auto', 'on', 'off'] as const
/** The engine `worker` moves messages while the rank computes, `inline` only while it waits. */
const engineOf = { on: 'worker', off: 'inline' } as const

/** The flags of an example that joins a job, for `join`. */
export function joinFlags(engine: (typeof engines)[number] = UNSET) {
  return { transport: choice(transports, UNSET), engine: choice(engines, engine) }
}

/** The flag of an example that computes, for `loadShown`. */
export const deviceFlag = { device: choice(devices, UNSET) }

/**
 * The flags of an example that joins a job and computes, for `startJob`. `--overlap` says whether messages
 * move while the rank computes. Without it, the engine decides: `auto` suits the cores of the machine.
 */
export function jobFlags(engine: (typeof engines)[number] = 'auto') {
  return { ...joinFlags(engine), overlap: choice(overlaps, 'auto'), ...deviceFlag }
}

/** The values of flags that the command line sets. */
export function given<Values extends Record<string, string>>(
  values: Values,
): { [Name in keyof Values]?: Exclude<Values[Name], typeof UNSET> } {
  const set = Object.entries(values).filter(([, value]) => value !== UNSET)
  return Object.fromEntries(set) as ReturnType<typeof given<Values>>
}

/** What the flags of `joinFlags` say. */
interface JoinFlags {
  readonly transport: (typeof transports)[number]
  readonly engine: (typeof engines)[number]
  readonly overlap?: (typeof overlaps)[number]
}

/** What the flags of `jobFlags` say. */
export interface JobFlags extends JoinFlags {
  readonly device: (typeof devices)[number]
}

/** The transport and the engine that the flags name, as options of `initProcessGroup`. */
export function joinOptions({ transport, engine, overlap = 'auto' }: JoinFlags): InitOptions {
  if (overlap === 'auto') return given({ transport, engine })
  const meant = engineOf[overlap]
  if (engine !== meant && engine !== 'auto' && engine !== UNSET) {
    endWith(`--overlap ${overlap} means --engine ${meant}, but --engine is ${engine}`)
  }
  return given({ transport, engine: meant })
}

/** Joins the job as the flags say. */
export async function join(flags: JoinFlags, options: InitOptions = {}): Promise<ProcessGroup> {
  return await initProcessGroup({ ...options, ...joinOptions(flags) })
}
