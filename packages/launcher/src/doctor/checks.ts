import { dirname, join } from 'node:path'
import { formatBytes } from '@tsrun/core'
import { isOldNode, OLDEST_NODE, version } from '../job/package.ts'
import type { Check, Facts, Finding } from './facts.ts'

export function checkNode({ node }: Facts): Finding[] {
  const found = `${node.version} on ${node.system}`
  if (isOldNode(node.version)) {
    const advice = `Install Node ${OLDEST_NODE} or later.`
    return [{ name: 'Node', state: 'problem', found, advice }]
  }
  if (!node.system.startsWith('linux')) {
    const advice = 'Shared memory, libc sockets and the inline engine are available only on Linux.'
    return [{ name: 'Node', state: 'note', found, advice }]
  }
  return [{ name: 'Node', state: 'ok', found }]
}

export function checkTypeScript({ node }: Facts): Finding[] {
  const name = 'TypeScript'
  if (Boolean(node.typescript))
    return [{ name, state: 'ok', found: 'Node strips the types itself' }]
  if (node.tsx !== undefined) return [{ name, state: 'ok', found: 'through tsx' }]
  const advice = 'npm install --save-dev tsx, or use Node 22.18 or later.'
  return [{ name, state: 'note', found: 'only JavaScript runs', advice }]
}

export function checkObserve({ observe }: Facts): Finding[] {
  const name = '@tsrun/observe'
  if (observe?.fits === true) return [{ name, state: 'ok', found: 'dashboard, metrics and traces' }]
  const uses = 'For --dashboard, --metrics, tsrun trace and tsrun view'
  if (observe === undefined) {
    const advice = `${uses}: npm install @tsrun/observe.`
    return [{ name, state: 'note', found: 'not installed', advice }]
  }
  const found = `version ${observe.version}, unlike tsrun (${version})`
  return [{ name, state: 'note', found, advice: `${uses}: npm install @tsrun/observe@${version}.` }]
}

/** From npm 12 on, or with ignore-scripts, npm installs dependencies without running their scripts. */
export function checkInstallScripts({ npm, native }: Facts): Finding[] {
  const name = 'install scripts'
  if (npm === undefined) return [{ name, state: 'ok', found: 'there is no npm here to block them' }]
  const [major = 0, minor = 0] = npm.version.split('.').map(Number)
  const asks = major > 11 || (major === 11 && minor >= 19)
  if (!npm.ignoresScripts && !asks) {
    return [{ name, state: 'ok', found: `npm ${npm.version} runs them` }]
  }
  const why = npm.ignoresScripts ? 'ignore-scripts is set' : 'unless they are approved'
  const found = `npm ${npm.version} skips them (${why}); tsrun needs none`
  if (native.available) {
    const advice =
      'The package of TensorFlow needs its script; tsrun setup tensorflow works without it.'
    return [{ name, state: 'ok', found, advice }]
  }
  const advice = 'If koffi is missing for that reason: npm rebuild koffi --ignore-scripts=false.'
  return [{ name, state: 'note', found, advice }]
}

/** Open files that a rank with a few dozen peers needs, including its script. */
const FILES = 1024

export function checkNative({ native }: Facts): Finding[] {
  const name = 'koffi'
  if (native.available) {
    return [{ name, state: 'ok', found: 'calls of the C library work' }]
  }
  const advice =
    'Without koffi, messages use the sockets of Node, which are slower, and there is no inline engine. ' +
    'Run npm install koffi (its binary is an optional package, so do not omit those), and unset TSRUN_NATIVE.'
  return [{ name, state: 'note', found: native.reason, advice }]
}

export function checkSharedMemory({ sharedMemory, native }: Facts): Finding[] {
  const name = 'shared memory'
  const { problem, size, free } = sharedMemory
  if (problem !== undefined) {
    const advice = native.available
      ? 'The ranks of this host use TCP. Shared memory needs memfd_create and access to /proc/PID/fd of ' +
        'the other ranks: the same user, the same /proc, and no seccomp rule against it.'
      : 'The ranks of this host use TCP. Shared memory needs koffi.'
    return [{ name, state: 'note', found: problem, advice }]
  }
  const room =
    size === undefined || free === undefined
      ? 'no /dev/shm, which is not needed'
      : `/dev/shm: ${formatBytes(free)} of ${formatBytes(size)} free`
  const found = `memfd and /proc/PID/fd work; ${room}`
  if (size !== undefined && size < 256 * 2 ** 20) {
    const advice = 'tsrun does not need /dev/shm, but MPI may: docker run --shm-size=1g.'
    return [{ name, state: 'ok', found, advice }]
  }
  return [{ name, state: 'ok', found }]
}

/**
 * With autogroups, the scheduler divides CPU time among sessions, so ranks in separate sessions cannot
 * yield a core to each other. With koffi, ranks stay in the session of their launcher.
 */
export function checkScheduler({ autogroups, native }: Facts): Finding[] {
  const name = 'scheduler'
  if (autogroups !== true) return [{ name, state: 'ok', found: 'no autogroups' }]
  if (native.available) {
    return [{ name, state: 'ok', found: 'autogroups, and all ranks in one session' }]
  }
  const found = 'autogroups, and ranks would be in sessions of their own'
  const advice = 'Install koffi, or run as root: sysctl kernel.sched_autogroup_enabled=0.'
  return [{ name, state: 'note', found, advice }]
}

export function checkOpenFiles({ openFiles }: Facts): Finding[] {
  const name = 'open files'
  if (openFiles === undefined) return [{ name, state: 'ok', found: 'limit unknown' }]
  const found = openFiles === Infinity ? 'no limit' : `up to ${openFiles} per process`
  if (openFiles >= FILES) return [{ name, state: 'ok', found }]
  const advice = `Run ulimit -n ${FILES * 4} before tsrun, or set nofile in /etc/security/limits.conf.`
  return [{ name, state: 'note', found, advice }]
}

export function checkThreads({ cores }: Facts): Finding[] {
  const name = 'threads'
  const { allowed, all, quota } = cores
  const of = allowed === all ? '' : ` of ${all}`
  const found = `${allowed}${of} ${all === 1 ? 'core' : 'cores'}; --nproc auto starts ${allowed}`
  if (quota === undefined || quota >= allowed) return [{ name, state: 'ok', found }]
  const time = Number(quota.toFixed(2))
  const advice = `This container may use the CPU time of ${time} cores: --nproc ${Math.max(1, Math.floor(quota))} is enough.`
  return [{ name, state: 'note', found, advice }]
}

export function checkMemory({ memory }: Facts): Finding[] {
  const speed = (memory.copied / 1e9).toFixed(1)
  const found = `${formatBytes(memory.size)}; one core copies ${speed} GB/s`
  return [{ name: 'memory', state: 'ok', found }]
}

/** The backend that `auto` chooses if no other is set up. */
const DEFAULT = 'wasm'

export function checkBackends({ backends, gpus }: Facts): Finding[] {
  return backends.map((backend): Finding => {
    const name = `backend ${backend.name}`
    if (backend.works) {
      const { version, device, threads } = backend
      const parts = [
        version,
        device ?? [],
        threads === undefined ? [] : `${threads} ${threads === 1 ? 'thread' : 'threads'}`,
      ]
      return { name, state: 'ok', found: `trains (${parts.flat().join(', ')})` }
    }
    const state = backend.name === DEFAULT ? 'problem' : 'note'
    const advice = adviceFor(backend.name, backend.missing, gpus.nvidia.length > 0)
    return { name, state, found: backend.reason, advice }
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
    const advice = 'npx tsrun setup tensorflow installs it again.'
    return [{ name, state: 'note', found: tensorflow.problem, advice }]
  }
  const { manifest } = tensorflow
  // The backend's own check reports that it is not set up.
  if (manifest === undefined) return []
  const { tensorflowVersion, packageVersion, devices, folder, request, kernels } = manifest
  const set = `${tensorflowVersion} behind ${manifest.package} ${packageVersion}, set up on ${devices.join(', ')}`
  const finding: Finding = { name, state: 'ok', found: set, details: [`in ${folder}`] }
  if (manifest.package === '@tensorflow/tfjs-node' && gpus.nvidia.length > 0) {
    const advice = 'npx tsrun setup tensorflow --gpu'
    return [{ ...finding, state: 'note', found: `${set}, although there are GPUs`, advice }]
  }
  if (kernels !== false) return [finding]
  const found = `${set}, without the kernels of tsrun: small layers are slower`
  // Installations with --official never have the kernels.
  if (request.official) return [{ ...finding, found }]
  const advice = `${join(dirname(folder), 'setup.log')} says why. --wheel names another TensorFlow; remove ${folder} to try again.`
  return [{ ...finding, state: 'note', found, advice }]
}

export function checkGpus({ gpus }: Facts): Finding[] {
  const name = 'GPUs'
  const { nvidia, topology, problem } = gpus
  if (problem !== undefined) {
    const advice =
      'The driver of the GPU does not answer: check nvidia-smi, or give the container access to the GPUs.'
    return [{ name, state: 'note', found: problem, advice }]
  }
  if (nvidia.length === 0) {
    return [{ name, state: 'ok', found: 'no NVIDIA GPU (there is no nvidia-smi)' }]
  }
  const found = nvidia.length === 1 ? '1 NVIDIA GPU' : `${nvidia.length} NVIDIA GPUs`
  return [{ name, state: 'ok', found, details: [...nvidia, ...topology] }]
}

export function checkMpi({ mpi, native }: Facts): Finding[] {
  const name = 'MPI'
  const { libraries, mpirun } = mpi
  if (libraries.length === 0) {
    const advice = 'If there is one, name it in TSRUN_LIBMPI: see docs/mpi.md.'
    if (mpirun !== undefined) {
      return [{ name, state: 'note', found: `${mpirun}, but no libmpi`, advice }]
    }
    return [{ name, state: 'ok', found: 'none; it is not needed' }]
  }
  const found = [mpirun ?? 'no mpirun', ...libraries].join(', ')
  if (native.available) return [{ name, state: 'ok', found }]
  return [{ name, state: 'note', found, advice: 'The transport mpi needs koffi.' }]
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
  checkMemory,
  checkBackends,
  checkTensorFlow,
  checkGpus,
  checkMpi,
]
