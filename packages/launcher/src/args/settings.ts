import { flagTable, type Flag, type FlagName } from './flags.ts'
import type { FlagValues } from './command-line.ts'

/** A value and where it came from: `--nproc`, `TSRUN_NPROC`, `PET_NPROC_PER_NODE` or `default`. */
export interface Setting {
  readonly value: string
  readonly source: string
}

export type Settings = Partial<Record<FlagName, Setting>>

type Environment = Readonly<Record<string, string | undefined>>

/** Completes the flags of the command line: flag, then TSRUN_*, then PET_*, then the default. */
export function completeSettings(values: FlagValues, env: Environment): Settings {
  const settings: Settings = {}
  for (const flag of flagTable) {
    const setting = find(flag, values[flag.name], env)
    if (setting !== undefined) settings[flag.name] = setting
  }
  return settings
}

/** The variables that set this flag, strongest first. */
export function variablesOf(flag: Flag): string[] {
  const own = [flag.name, ...(flag.aliases ?? [])].map((name) => `TSRUN_${upperCase(name)}`)
  return flag.torchrun === undefined ? own : [...own, `PET_${upperCase(flag.torchrun)}`]
}

/** One line that says what came from the environment; undefined if nothing did. */
export function describeEnvironment(settings: Settings): string | undefined {
  const parts = Object.entries(settings)
    .filter(([, { source }]) => /^(TSRUN|PET)_/.test(source))
    .map(([name, { value, source }]) => `${name}=${value} (${source})`)
  return parts.length === 0 ? undefined : `from the environment: ${parts.join(', ')}`
}

function find(flag: Flag, value: string | undefined, env: Environment): Setting | undefined {
  if (value !== undefined) return { value, source: `--${flag.name}` }
  for (const variable of variablesOf(flag)) {
    const text = env[variable]
    if (text !== undefined && text !== '') return { value: text, source: variable }
  }
  return flag.fallback === undefined ? undefined : { value: flag.fallback, source: 'default' }
}

function upperCase(name: string): string {
  return name.replaceAll('-', '_').toUpperCase()
}
