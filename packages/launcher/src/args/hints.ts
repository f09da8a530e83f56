import { nearestName } from '@tsrun/core'
import type { Flag } from './flag.ts'
import { flagTable, type FlagName } from './flags.ts'
import { findFlag, variablesOf, type Settings } from './settings.ts'

const HOSTS = 'tsrun hosts --hostfile FILE -- script'

/** Flags of other launchers: the launcher, and what tsrun has instead. */
const others: Readonly<Record<string, readonly [launcher: string, instead: string]>> = {
  'num-processes': ['accelerate', '--nproc, the ranks of each host'],
  'num-machines': ['accelerate', '--nnodes'],
  'machine-rank': ['accelerate', '--node-rank'],
  'main-process-ip': ['accelerate', '--rdzv-endpoint'],
  'main-process-port': ['accelerate', '--master-port'],
  'multi-gpu': ['accelerate', '--nproc gpu'],
  'gpu-ids': ['accelerate', 'the variable CUDA_VISIBLE_DEVICES'],
  cpu: ['accelerate', 'the variable TSRUN_BACKEND=wasm'],
  'num-gpus': ['deepspeed', '--nproc'],
  'num-nodes': ['deepspeed', '--nnodes'],
  hostfile: ['deepspeed and mpirun', HOSTS],
  include: ['deepspeed', HOSTS],
  exclude: ['deepspeed', HOSTS],
  n: ['mpirun', '--nproc'],
  np: ['mpirun and horovodrun', '--nproc'],
  H: ['mpirun and horovodrun', HOSTS],
  host: ['mpirun', HOSTS],
  x: ['mpirun', 'the environment, or tsrun hosts --env NAME'],
  'bind-to': ['mpirun', '--bind'],
  'map-by': ['mpirun', '--bind'],
  oversubscribe: ['mpirun', 'not needed: --nproc may be any number'],
  'min-np': ['horovodrun', '--nnodes MIN:MAX'],
  'max-np': ['horovodrun', '--nnodes MIN:MAX'],
  hosts: ['horovodrun', HOSTS],
  'network-interfaces': ['horovodrun', '--iface'],
  'start-timeout': ['horovodrun', '--rdzv-timeout'],
  'timeline-filename': ['horovodrun', '--trace DIR'],
}

/** What the user probably meant by an unknown flag; empty if unknown. @param known - names of flags */
export function hintFor(unknown: string, known: readonly string[]): string {
  const word = unknown.replaceAll('_', '-')
  const [launcher, instead] = others[word] ?? []
  // Commands have flags of their own.
  if (launcher !== undefined && known.includes('nproc'))
    return ` (a flag of ${launcher}; here ${instead!})`
  const name = nearestName(
    word,
    known.filter((one) => one.length > 1),
  )
  return name === undefined ? '' : ` (the nearest is --${name})`
}

/** Flags that a script hardly has itself. */
const early: readonly FlagName[] = [
  ...(['nproc', 'nnodes', 'node-rank', 'rdzv-endpoint', 'rdzv-backend'] as const),
  ...(['master-addr', 'master-port', 'max-restarts'] as const),
]

/** Variables of tsrun that are no flags, without TSRUN_. */
const variables =
  'TOKEN FLIGHT_DIR FLIGHT_ENTRIES HOME RUN_ID BLAS BACKEND LOCAL_RANK DEBUG TUNING TRACE_DIR STORE_PORT ' +
  'LIBMPI WEBGPU_ADAPTER RESTART_COUNT LOG_LEVEL KEEP_LOGS CORE_RANKS CONTROL_FD ARENA STATUS_PAGE ' +
  'RUNS_DIR NATIVE LAUNCHER_PID ENGINE CORES ACCEPT_FAULTS TRANSPORT TRACE_RANGE TRACE_BYTES ' +
  'STALL_WARNING MATH PARENT_PIPE HOST_COLUMNS DOWNLOADS'

/**
 * Sentences about what the user probably did not mean. The job runs all the same.
 *
 * @param words - the arguments of the script
 */
export function remarksOn(
  settings: Settings,
  words: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
): string[] {
  const isLate = ({ name }: Flag): boolean =>
    early.some((one) => one === name && (settings[one]?.source ?? 'default') === 'default')
  const late = words.find((word) => {
    const flag = word.startsWith('--') ? findFlag(word.split('=', 1)[0]!) : undefined
    return flag !== undefined && isLate(flag)
  })
  const isAlone = settings.nnodes?.value === '1' && settings.tls?.value === 'true'
  return [
    ...(late === undefined
      ? []
      : [`${late} follows the script, so the script gets it; flags of tsrun precede the script`]),
    ...(isAlone ? ['--tls is for several hosts; nothing of this job goes over the network'] : []),
    ...misspelt(env),
  ]
}

function misspelt(env: Readonly<Record<string, string | undefined>>): string[] {
  const known = [
    ...flagTable.flatMap(variablesOf),
    ...variables.split(' ').map((one) => `TSRUN_${one}`),
  ]
  return Object.keys(env).flatMap((name) => {
    const [prefix] = /^(?:TSRUN|PET)_/.exec(name) ?? []
    if (prefix === undefined || known.includes(name)) return []
    const rests = known.flatMap((one) => (one.startsWith(prefix) ? one.slice(prefix.length) : []))
    const nearest = nearestName(name.slice(prefix.length), rests)
    return nearest === undefined ? [] : `${name} has no effect (the nearest is ${prefix}${nearest})`
  })
}
