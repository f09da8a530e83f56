import type { Values } from './flags.ts'
import { toHosts, withoutOthers, type HostOptions } from './host-options.ts'
import { toOutput, type OutputOptions } from './output-options.ts'
import { toRankOptions, type RankOptions } from './rank-options.ts'
import { usageError } from './readers.ts'
import { readSettings, type Settings } from './settings.ts'

/** How the cores of a rank are chosen; `core` is a share of all cores, whatever their node. */
export type Binding = NonNullable<Values['numa-binding']> | 'core'

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
 * Reads the settings.
 *
 * @throws ERR_TSR_USAGE
 */
export function toJobOptions(
  given: Settings,
  command: readonly string[],
  capacity: Capacity,
): JobOptions {
  const [script, ...scriptArguments] = command
  if (script === undefined)
    throw usageError(
      'No script given: tsrun [flags] script [arguments], or tsrun init for a new project',
    )
  const settings = withoutOthers(given)
  checkOnlyChoices(settings)
  const values = readSettings(settings)
  const nproc = countRanks(values, settings, capacity)
  const kind = kindOf(values)
  return {
    nproc,
    ...toHosts(values, settings, nproc),
    ...toOutput(values, settings),
    ...toRankOptions(values, settings, kind, nproc),
    maxRestarts: values['max-restarts'],
    grace: values.grace,
    summary: values.summary,
    dryRun: values['dry-run'],
    kind,
    role: values.role,
    virtualLocalRank: values['virtual-local-rank'],
    binding: bindingOf(values, settings),
    signals: values['signals-to-handle'],
    script,
    scriptArguments,
  }
}

function countRanks(
  { nproc }: Values,
  settings: Settings,
  { cores, gpus, usesGpus }: Capacity,
): number {
  if (nproc === 'auto') return (usesGpus() && gpus()) || cores
  if (nproc === 'cpu') return cores
  const found = nproc === 'gpu' ? gpus() : nproc
  if (found > 0) return found
  throw usageError(`${settings.nproc?.source ?? ''} is gpu, but this host has none (nvidia-smi -L)`)
}

function kindOf({ module, 'no-python': isProgram }: Values): JobOptions['kind'] {
  if (module && isProgram) throw usageError('--module and --no-python exclude each other')
  return module ? 'module' : isProgram ? 'program' : 'file'
}

/** Of `--bind` and `--numa-binding`, which are two names of one thing. */
function bindingOf(
  { bind, 'numa-binding': numa }: Values,
  settings: Settings,
): Binding | undefined {
  if (bind === undefined) return numa
  if (numa !== undefined) {
    const [one, other] = [settings.bind!, settings['numa-binding']!]
    throw usageError(`${one.source} and ${other.source} exclude each other`)
  }
  return bind === 'none' ? undefined : bind === 'numa' ? 'node' : bind
}

/** Checks the flags of torchrun that have one value only, or others that do not exist here. */
function checkOnlyChoices(settings: Settings): void {
  const backend = settings['rdzv-backend']
  if (backend?.value.startsWith('etcd') === true) {
    throw usageError(
      `${backend.source} is ${backend.value}: use c10d, as hosts need no service beside the store of node 0`,
    )
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
