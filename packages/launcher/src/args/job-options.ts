import { constants } from 'node:os'
import { readHosts, type HostOptions } from './host-options.ts'
import { readOutput, type OutputOptions } from './output-options.ts'
import { readRankOptions, type RankOptions } from './rank-options.ts'
import {
  read,
  readInteger,
  readSeconds,
  readSwitch,
  toInteger,
  usageError,
} from './read-setting.ts'
import type { Settings } from './settings.ts'

const LARGEST_NPROC = 4096

/** How `--numa-binding` chooses the cores of a rank. */
export const numaBindings = ['node', 'socket', 'exclusive', 'core-complex'] as const

/** How the cores of a rank are chosen; `core` is a share of all cores, whatever their node. */
export type Binding = (typeof numaBindings)[number] | 'core'

/** The options of a job, checked and complete. */
export interface JobOptions extends HostOptions, OutputOptions, RankOptions {
  /** The number of ranks on this host. */
  readonly nproc: number
  readonly maxRestarts: number
  /** Milliseconds between SIGTERM and SIGKILL. */
  readonly grace: number
  readonly summary: boolean
  readonly dryRun: boolean
  /** What `script` names: a file, a module of a package, or any program. */
  readonly kind: 'file' | 'module' | 'program'
  readonly role: string
  readonly virtualLocalRank: boolean
  readonly binding: Binding | undefined
  /** The signals that stop the job. */
  readonly signals: readonly NodeJS.Signals[]
  readonly script: string
  readonly scriptArguments: readonly string[]
}

/** What `--nproc` may stand for on this host. */
export interface Capacity {
  readonly cores: number
  readonly gpus: () => number
  /** Whether the backend that ranks load computes on GPUs. */
  readonly usesGpus: () => boolean
}

/**
 * Checks the settings.
 *
 * @throws ERR_TSR_USAGE
 */
export function toJobOptions(
  settings: Settings,
  command: readonly string[],
  capacity: Capacity,
): JobOptions {
  const [script, ...scriptArguments] = command
  if (script === undefined)
    throw usageError(
      'No script given: tsrun [flags] script [arguments], or tsrun init for a new project',
    )
  const nproc = readNproc(settings, capacity)
  const kind = readKind(settings)
  checkUnused(settings)
  return {
    nproc,
    ...readHosts(settings, nproc),
    ...readOutput(settings),
    ...readRankOptions(settings, kind, nproc),
    maxRestarts: readInteger(settings, 'max-restarts', 0, 1_000_000),
    grace: read(settings, 'grace', 'a number of seconds from 0 to 86400', readSeconds) * 1000,
    summary: readSwitch(settings, 'summary'),
    dryRun: readSwitch(settings, 'dry-run'),
    kind,
    role: read(settings, 'role', 'a name', (text) => text || undefined),
    virtualLocalRank: readSwitch(settings, 'virtual-local-rank'),
    binding: readBinding(settings),
    signals: readSignals(settings),
    script,
    scriptArguments,
  }
}

function readNproc(settings: Settings, { cores, gpus, usesGpus }: Capacity): number {
  const limit = `an integer from 1 to ${LARGEST_NPROC}, auto, gpu or cpu`
  return read(settings, 'nproc', limit, (text) => {
    if (text === 'auto') return (usesGpus() && gpus()) || cores
    if (text === 'cpu') return cores
    if (text !== 'gpu') return toInteger(text, 1, LARGEST_NPROC)
    const found = gpus()
    if (found > 0) return found
    throw usageError(
      `${settings.nproc?.source ?? ''} is gpu, but this host has none (nvidia-smi -L)`,
    )
  })
}

function readKind(settings: Settings): JobOptions['kind'] {
  const isModule = readSwitch(settings, 'module')
  const isProgram = readSwitch(settings, 'no-python')
  if (isModule && isProgram) throw usageError('--module and --no-python exclude each other')
  return isModule ? 'module' : isProgram ? 'program' : 'file'
}

const bindings = new Map<string, Binding | 'none'>([
  ['core', 'core'],
  ['numa', 'node'],
  ['none', 'none'],
])

/** Of `--bind` and `--numa-binding`, which are two names of one thing. */
function readBinding(settings: Settings): Binding | undefined {
  const { bind, 'numa-binding': numa } = settings
  if (bind !== undefined) {
    const expected = `one of ${[...bindings.keys()].join(', ')}`
    const binding = read(settings, 'bind', expected, (text) => bindings.get(text))
    if (numa !== undefined) throw usageError(`${bind.source} and ${numa.source} exclude each other`)
    return binding === 'none' ? undefined : binding
  }
  if (numa === undefined) return undefined
  const expected = `one of ${numaBindings.join(', ')}`
  return read(settings, 'numa-binding', expected, (text) =>
    numaBindings.find((binding) => binding === text.replaceAll('_', '-')),
  )
}

function readSignals(settings: Settings): NodeJS.Signals[] {
  const impossible = ['SIGKILL', 'SIGSTOP']
  const expected = 'names of signals, for example SIGTERM,SIGUSR1, but not SIGKILL or SIGSTOP'
  return read(settings, 'signals-to-handle', expected, (text) => {
    const names = text.split(',').map((name) => name.trim().toUpperCase())
    const isValid = names.every((name) => name in constants.signals && !impossible.includes(name))
    return isValid ? (names as NodeJS.Signals[]) : undefined
  })
}

/** Checks the flags of torchrun that have no effect, or one value only. */
function checkUnused(settings: Settings): void {
  readSwitch(settings, 'run-path')
  if (settings['monitor-interval'] !== undefined) {
    read(settings, 'monitor-interval', 'a number of seconds', readSeconds)
  }
  const only = [
    ['start-method', 'spawn', 'each rank is a process of its own'],
    ['logs-specs', 'default', '--log-dir, --redirects and --tee say where output goes'],
  ] as const
  for (const [name, value, instead] of only) {
    const setting = settings[name]
    if (setting === undefined || setting.value === value) continue
    throw usageError(`${setting.source} is ${setting.value}; tsrun has only ${value}: ${instead}`)
  }
}
