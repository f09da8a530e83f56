import { nearestName } from '@tsrun/core'
import { findFlag } from './flag.ts'
import { flags, flagTable, type FlagName } from './flags.ts'
import { variablesOf, type Environment, type Settings } from './settings.ts'

const HOSTS = 'tsrun hosts --hostfile FILE -- script'

/** Flags of other launchers, each with the equivalent flag of tsrun. */
const others: Readonly<Record<string, string>> = {
  'num-processes': 'accelerate; here --nproc, the ranks of each host',
  'num-machines': 'accelerate; here --nnodes',
  'machine-rank': 'accelerate; here --node-rank',
  'main-process-ip': 'accelerate; here --rdzv-endpoint',
  'main-process-port': 'accelerate; here --master-port',
  'multi-gpu': 'accelerate; here --nproc gpu',
  'gpu-ids': 'accelerate; here the variable CUDA_VISIBLE_DEVICES',
  cpu: 'accelerate; here the variable TSRUN_BACKEND=wasm',
  'config-file': 'accelerate; here variables such as TSRUN_NPROC',
  'use-deepspeed': 'accelerate; here `zero` of the trainer',
  'use-fsdp': 'accelerate; here `zero` of the trainer',
  'mixed-precision': 'accelerate; tensors are float32 here',
  'num-gpus': 'deepspeed; here --nproc',
  'num-nodes': 'deepspeed; here --nnodes',
  'no-local-rank': 'deepspeed; here ranks get LOCAL_RANK in their environment only',
  launcher: 'deepspeed; here Slurm and MPI are recognized',
  hostfile: `deepspeed and mpirun; here ${HOSTS}`,
  include: `deepspeed; here ${HOSTS}`,
  exclude: `deepspeed; here ${HOSTS}`,
  n: 'mpirun; here --nproc',
  np: 'mpirun and horovodrun; here --nproc',
  N: 'mpirun and srun; here --nproc or --nnodes',
  npernode: 'mpirun; here --nproc',
  ppn: 'mpiexec; here --nproc',
  H: `mpirun and horovodrun; here ${HOSTS}`,
  host: `mpirun; here ${HOSTS}`,
  x: 'mpirun; here the environment, or tsrun hosts --env NAME',
  mca: 'mpirun; here --iface chooses the network',
  'bind-to': 'mpirun; here --bind',
  'map-by': 'mpirun; here --bind',
  'report-bindings': 'mpirun; here --dry-run',
  'tag-output': 'mpirun; here on by default',
  oversubscribe: 'mpirun; here --nproc may be any number',
  'allow-run-as-root': 'mpirun; it is not needed here',
  'min-np': 'horovodrun; here --nnodes MIN:MAX',
  'max-np': 'horovodrun; here --nnodes MIN:MAX',
  'host-discovery-script': 'horovodrun; here --nnodes MIN:MAX, and hosts join by themselves',
  'slots-per-host': 'horovodrun; here --nproc',
  hosts: `horovodrun; here ${HOSTS}`,
  'ssh-port': `horovodrun and deepspeed; here ${HOSTS} with --ssh "ssh -p PORT"`,
  'network-interfaces': 'horovodrun; here --iface',
  'start-timeout': 'horovodrun; here --rdzv-timeout',
  'output-filename': 'horovodrun and mpirun; here --log-dir DIR',
  'timeline-filename': 'horovodrun; here --trace DIR',
  gloo: 'horovodrun; it is not needed here',
  mpi: 'horovodrun; here the variable TSRUN_TRANSPORT=mpi',
  verbose: 'horovodrun; here the variable TSRUN_LOG_LEVEL=debug',
  ntasks: 'srun; here --nproc, the ranks of each host',
  'ntasks-per-node': 'srun; here --nproc',
  'gpus-per-node': 'srun; here --nproc gpu',
  'cpus-per-task': 'srun; here --bind core',
}

/** Suggests a flag in place of an unknown flag; '' if no flag is similar. @param known - names of flags */
export function hintFor(unknown: string, known: readonly string[]): string {
  const word = unknown.replaceAll('_', '-')
  // Other launchers have equivalents only for the flags of a job, which include --nproc.
  const other = known.includes('nproc') ? others[word] : undefined
  if (other !== undefined) return ` (a flag of ${other})`
  const names = known.filter((name) => name.length > 1)
  const name = nearestName(word, names)
  return name === undefined ? '' : ` (the nearest is --${name})`
}

/** Flags that are unlikely to be flags of the script. */
const early: readonly FlagName[] = [
  'nproc',
  'nnodes',
  'node-rank',
  'rdzv-endpoint',
  'rdzv-backend',
  'master-addr',
  'master-port',
  'max-restarts',
]

/** The environment variables of tsrun that do not set a flag. Their prefix TSRUN_ is omitted. */
const variables =
  'TOKEN FLIGHT_DIR FLIGHT_ENTRIES HOME RUN_ID BLAS BACKEND LOCAL_RANK DEBUG TUNING TRACE_DIR STORE_PORT ' +
  'LIBMPI WEBGPU_ADAPTER RESTART_COUNT LOG_LEVEL KEEP_LOGS CORE_RANKS CONTROL_FD ARENA STATUS_PAGE ' +
  'RUNS_DIR NATIVE LAUNCHER_PID ENGINE CORES ACCEPT_FAULTS TRANSPORT TRACE_RANGE TRACE_BYTES ' +
  'STALL_WARNING MATH PARENT_PIPE DOWNLOADS'

/** Warns about probable mistakes, in sentences. @param words - the arguments of the script */
export function remarksOn(
  settings: Settings,
  words: readonly string[],
  env: Environment,
): string[] {
  const remarks = misspelt(env)
  if (settings.nnodes?.value === '1' && settings.tls?.value === 'true') {
    remarks.push('--tls is for several hosts; nothing of this job goes over the network')
  }
  const late = words.find((word) => {
    const found = word.startsWith('--') ? findFlag(flags, word.split('=', 1)[0]!) : undefined
    const name = early.find((one) => one === found)
    return name !== undefined && (settings[name]?.source ?? 'default') === 'default'
  })
  if (late === undefined) return remarks
  const text = `${late} follows the script, so the script gets it; flags of tsrun precede the script`
  return [...remarks, text]
}

function misspelt(env: Environment): string[] {
  const own = variables.split(' ').map((name) => `TSRUN_${name}`)
  const known = [...flagTable.flatMap(variablesOf), ...own]
  return Object.keys(env).flatMap((name) => {
    const [prefix] = /^(?:TSRUN|PET)_/.exec(name) ?? []
    if (prefix === undefined || known.includes(name)) return []
    const alike = known.filter((one) => one.startsWith(prefix))
    const rests = alike.map((one) => one.slice(prefix.length))
    const nearest = nearestName(name.slice(prefix.length), rests)
    return nearest === undefined ? [] : `${name} has no effect (the nearest is ${prefix}${nearest})`
  })
}
