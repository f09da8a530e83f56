import { dirname, join } from 'node:path'
import { formatBytes } from '@tsrun/core'
import { isOldNode, OLDEST_NODE, version } from '../package.ts'
import { systemAdvice } from '../setup/blas.ts'
import type { Facts } from './gather.ts'

/** The result of a check. */
export interface Finding {
  readonly name: string
  /**
   * `note`: the default backend can train, and `advice` is optional. `problem`: the default backend
   * cannot train until the user follows `advice`.
   */
  readonly state: 'ok' | 'note' | 'problem'
  readonly found: string
  readonly advice?: string | undefined
  /** Output lines of a tool. */
  readonly details?: readonly string[]
}

export type Check = (facts: Facts) => readonly Finding[]

/** Makes a finding, whose default state is `note` if there is advice. */
function finding(
  name: string,
  found: string,
  advice?: string,
  state: Finding['state'] = advice === undefined ? 'ok' : 'note',
): Finding[] {
  return [{ name, state, found, advice }]
}

export function checkNode({ node }: Facts): Finding[] {
  const found = `${node.version} on ${node.system}`
  if (isOldNode(node.version)) {
    return finding('Node', found, `Install Node ${OLDEST_NODE} or later.`, 'problem')
  }
  const advice = 'Shared memory, libc sockets and the inline engine are available only on Linux.'
  return finding('Node', found, node.system.startsWith('linux') ? undefined : advice)
}

export function checkTypeScript({ node }: Facts): Finding[] {
  const name = 'TypeScript'
  if (Boolean(node.typescript)) return finding(name, 'Node strips the types itself')
  if (node.tsx !== undefined) return finding(name, 'through tsx')
  const advice = 'npm install --save-dev tsx, or use Node 22.18 or later.'
  return finding(name, 'only JavaScript runs', advice)
}

export function checkObserve({ observe }: Facts): Finding[] {
  const name = '@tsrun/observe'
  if (observe?.fits === true) return finding(name, 'dashboard, metrics and traces')
  const [found, wanted] =
    observe === undefined
      ? ['not installed', '']
      : [`version ${observe.version}, unlike tsrun (${version})`, `@${version}`]
  const uses = 'For --dashboard, --metrics, tsrun trace and tsrun view'
  return finding(name, found, `${uses}: npm install @tsrun/observe${wanted}.`)
}

/** Reports whether npm skips install scripts: if ignore-scripts is set, or if npm is 11.19 or newer. */
export function checkInstallScripts({ npm, native }: Facts): Finding[] {
  const name = 'install scripts'
  if (npm === undefined) return finding(name, 'there is no npm here to block them')
  const [major = 0, minor = 0] = npm.version.split('.').map(Number)
  const asks = major > 11 || (major === 11 && minor >= 19)
  if (!npm.ignoresScripts && !asks) return finding(name, `npm ${npm.version} runs them`)
  const why = npm.ignoresScripts ? 'ignore-scripts is set' : 'unless they are approved'
  const found = `npm ${npm.version} skips them (${why}); tsrun needs none`
  if (native.available) {
    const advice =
      'The package of TensorFlow needs its script; tsrun setup tensorflow works without it.'
    return finding(name, found, advice, 'ok')
  }
  const advice = 'If koffi is missing for that reason: npm rebuild koffi --ignore-scripts=false.'
  return finding(name, found, advice)
}

/** Open files that suffice for the script and the connections of a rank with a few dozen peers. */
const FILES = 1024

export function checkNative({ native }: Facts): Finding[] {
  const name = 'koffi'
  if (native.available) return finding(name, 'calls of the C library work')
  const advice =
    'Without koffi, messages use the sockets of Node, which are slower, and there is no inline engine. ' +
    'Run npm install koffi (its binary is an optional package, so do not omit those), and unset TSRUN_NATIVE.'
  return finding(name, native.reason, advice)
}

export function checkSharedMemory({ sharedMemory, native }: Facts): Finding[] {
  const name = 'shared memory'
  const { problem, size, free } = sharedMemory
  if (problem !== undefined) {
    const advice = native.available
      ? 'The ranks of this host use TCP. Shared memory needs memfd_create and access to /proc/PID/fd of ' +
        'the other ranks: the same user, the same /proc, and no seccomp rule against it.'
      : 'The ranks of this host use TCP. Shared memory needs koffi.'
    return finding(name, problem, advice)
  }
  const room =
    size === undefined || free === undefined
      ? 'no /dev/shm, which is not needed'
      : `/dev/shm: ${formatBytes(free)} of ${formatBytes(size)} free`
  const found = `memfd and /proc/PID/fd work; ${room}`
  const advice = 'tsrun does not need /dev/shm, but MPI may: docker run --shm-size=1g.'
  const isSmall = size !== undefined && size < 256 * 2 ** 20
  return finding(name, found, isSmall ? advice : undefined, 'ok')
}

/**
 * With autogroups, the scheduler divides CPU time among sessions, so ranks in separate sessions cannot
 * yield a core to each other. With koffi, ranks stay in the session of their launcher.
 */
export function checkScheduler({ autogroups, native }: Facts): Finding[] {
  const name = 'scheduler'
  if (!autogroups) return finding(name, 'no autogroups')
  if (native.available) return finding(name, 'autogroups, and all ranks in one session')
  const found = 'autogroups, and ranks would be in sessions of their own'
  const advice = 'Install koffi, or run as root: sysctl kernel.sched_autogroup_enabled=0.'
  return finding(name, found, advice)
}

export function checkOpenFiles({ openFiles }: Facts): Finding[] {
  const name = 'open files'
  if (openFiles === undefined) return finding(name, 'limit unknown')
  const found = openFiles === Infinity ? 'no limit' : `up to ${openFiles} per process`
  const advice = `Run ulimit -n ${FILES * 4} before tsrun, or set nofile in /etc/security/limits.conf.`
  return finding(name, found, openFiles >= FILES ? undefined : advice)
}

export function checkThreads({ cores }: Facts): Finding[] {
  const name = 'threads'
  const { allowed, all, quota, usable } = cores
  const of = allowed === all ? '' : ` of ${all}`
  const found = `${allowed}${of} ${all === 1 ? 'core' : 'cores'}; --nproc auto starts ${usable}`
  if (quota === undefined || quota >= allowed) return finding(name, found)
  const time = Number(quota.toFixed(2))
  const advice = `The quota of the cgroup is the CPU time of ${time} ${time === 1 ? 'core' : 'cores'}; more ranks are no faster.`
  return finding(name, found, advice)
}

/** Threads and KiB of addresses that a rank needs on the default backend. */
const RANK = { threads: 13, addresses: 4e6 }

export function checkLimits({ limits, cores }: Facts): Finding[] {
  const name = 'limits'
  const { 'ulimit -v': addresses, ...processes } = limits
  const set = Object.entries(limits).filter(([, limit]) => Number.isFinite(limit))
  const found =
    set.length === 0
      ? 'none on processes and addresses'
      : set.map(([limit, value]) => `${limit}: ${value}`).join(', ')
  const isSmall =
    Math.min(...Object.values(processes)) < cores.usable * RANK.threads ||
    addresses < RANK.addresses
  const advice = `Raise the limits, or start fewer ranks: a rank has about ${RANK.threads} threads and needs 4 GB of addresses.`
  return finding(name, found, isSmall ? advice : undefined)
}

export function checkMemory({ memory }: Facts): Finding[] {
  const speed = (memory.copied / 1e9).toFixed(1)
  return finding('memory', `${formatBytes(memory.size)}; one core copies ${speed} GB/s`)
}

/** The backend that `auto` selects unless another backend is set up. */
const DEFAULT = 'wasm'

export function checkBackends({ backends, gpus }: Facts): Finding[] {
  return backends.flatMap((backend): Finding[] => {
    const name = `backend ${backend.name}`
    if (backend.works) {
      const { version, device, threads } = backend
      const parts = [
        version,
        device ?? [],
        threads === undefined ? [] : `${threads} ${threads === 1 ? 'thread' : 'threads'}`,
      ]
      return finding(name, `trains (${parts.flat().join(', ')})`)
    }
    const state = backend.name === DEFAULT ? 'problem' : 'note'
    const advice = adviceFor(backend.name, backend.missing, gpus.nvidia.length > 0)
    return finding(name, backend.reason, advice, state)
  })
}

function adviceFor(name: string, missing: boolean, hasGpu: boolean): string {
  if (name === 'tensorflow') {
    const gpu = hasGpu ? ' --gpu' : ''
    return missing ? `npx tsrun setup tensorflow${gpu}` : `npx tsrun setup tensorflow${gpu} --check`
  }
  if (name === 'webgpu') {
    return missing
      ? 'For GPUs of any vendor: npm install webgpu @tensorflow/tfjs-backend-webgpu.'
      : 'It needs a driver for Vulkan; TSRUN_WEBGPU_ADAPTER chooses one: see docs/webgpu.md.'
  }
  return missing
    ? 'npm install @tsrun/training'
    : 'Run npm ci, or remove node_modules and install again.'
}

export function checkTensorFlow({ tensorflow, gpus }: Facts): Finding[] {
  const name = 'TensorFlow'
  if ('problem' in tensorflow) {
    return finding(name, tensorflow.problem, 'npx tsrun setup tensorflow installs it again.')
  }
  const { manifest } = tensorflow
  // `checkBackends` reports that TensorFlow is not set up.
  if (manifest === undefined) return []
  const { tensorflowVersion, packageVersion, devices, folder, request, kernels } = manifest
  const set = `${tensorflowVersion} behind ${manifest.package} ${packageVersion}, set up on ${devices.join(', ')}`
  const detailed = (found: string, advice?: string): Finding[] =>
    finding(name, found, advice).map((one) => ({ ...one, details: [`in ${folder}`] }))
  if (manifest.package === '@tensorflow/tfjs-node' && gpus.nvidia.length > 0) {
    return detailed(`${set}, although there are GPUs`, 'npx tsrun setup tensorflow --gpu')
  }
  if (kernels !== false) return detailed(set)
  const advice = `${join(dirname(folder), 'setup.log')} says why. --wheel names another TensorFlow; remove ${folder} to try again.`
  return detailed(
    `${set}, without the kernels of tsrun: small layers are slower`,
    // Installations with --official never have the kernels.
    request.official ? undefined : advice,
  )
}

export function checkBlas({ blas }: Facts): Finding[] {
  const { library, origin, kernels, problems: details } = blas
  const found = library === null ? 'none' : `${library}, kernels ${kernels!}, from ${origin!}`
  const advice =
    'For faster products of matrices: npx tsrun setup blas, unless TSRUN_BLAS names another one or is ' +
    `off; or ${systemAdvice}.`
  const [result] = finding('BLAS', found, library === null ? advice : undefined)
  return [{ ...result!, details }]
}

export function checkGpus({ gpus }: Facts): Finding[] {
  const name = 'GPUs'
  const { nvidia, topology, problem, uses, misnamed } = gpus
  if (problem !== undefined) {
    const advice =
      'The driver of the GPU does not answer: check nvidia-smi, or give the container access to the GPUs.'
    return finding(name, problem, advice)
  }
  if (nvidia.length === 0) return finding(name, 'no NVIDIA GPU (there is no nvidia-smi)')
  const count = nvidia.length === 1 ? '1 NVIDIA GPU' : `${nvidia.length} NVIDIA GPUs`
  const details = [...nvidia, ...topology]
  const [result] =
    misnamed === undefined
      ? finding(name, uses === undefined ? count : `${count}: ${uses}`)
      : finding(name, `${count}, but ${misnamed}`, 'Change CUDA_VISIBLE_DEVICES, or unset it.')
  return [{ ...result!, details }]
}

export function checkMpi({ mpi, native }: Facts): Finding[] {
  const name = 'MPI'
  const { libraries, mpirun } = mpi
  if (libraries.length === 0) {
    const advice = 'If there is one, name it in TSRUN_LIBMPI: see docs/mpi.md.'
    return mpirun === undefined
      ? finding(name, 'none; it is not needed')
      : finding(name, `${mpirun}, but no libmpi`, advice)
  }
  const found = [mpirun ?? 'no mpirun', ...libraries].join(', ')
  return finding(name, found, native.available ? undefined : 'The transport mpi needs koffi.')
}

/** All checks, in the order of the report. */
export const checks: readonly Check[] = [
  checkNode,
  checkTypeScript,
  checkObserve,
  checkInstallScripts,
  checkNative,
  checkSharedMemory,
  checkScheduler,
  checkOpenFiles,
  checkThreads,
  checkLimits,
  checkMemory,
  checkBackends,
  checkTensorFlow,
  checkBlas,
  checkGpus,
  checkMpi,
]
