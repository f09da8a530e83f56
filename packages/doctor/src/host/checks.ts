import { dirname, join } from 'node:path'
import { formatBytes } from '@tsrun/core'
import { isOldNode, OLDEST_NODE } from '@tsrun/launcher/host'
import { systemAdvice } from '../setup/blas.ts'
import { describe, hasCurrentBinding } from '../setup/tensorflow.ts'
import type { Facts } from './gather.ts'

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

/** A finding without the name of its check. The default state is `note` if there is advice, else `ok`. */
type Outcome = Omit<Finding, 'name' | 'state'> & Partial<Pick<Finding, 'state'>>

/** Checks by name, in the order of the report. */
type Checks = Readonly<Record<string, (facts: Facts) => Outcome | undefined>>

/** Minimum limits for a rank with dozens of peers: threads, KiB of address space, and open files. */
const RANK = { threads: 13, addresses: 4e6, files: 1024 }

const checksOfHost: Checks = {
  Node({ node }) {
    const found = `${node.version} on ${node.system}`
    if (isOldNode(node.version)) {
      return { found, advice: `Install Node ${OLDEST_NODE} or later.`, state: 'problem' }
    }
    const advice = 'Shared memory, libc sockets and the inline engine are available only on Linux.'
    return { found, advice: node.system.startsWith('linux') ? undefined : advice }
  },

  koffi({ native }) {
    if (native.available) return { found: 'calls of the C library work' }
    const advice =
      'Without koffi, messages use the sockets of Node, which are slower, there is no inline engine, and ' +
      'tsrun ps, top and stacks show no job. ' +
      'Run npm install koffi (its binary is an optional package, so do not omit those), and unset TSRUN_NATIVE.'
    return { found: native.reason, advice }
  },

  'shared memory'({ sharedMemory: { problem, size, free }, native }) {
    if (problem !== undefined) {
      const advice = native.available
        ? 'The ranks of this host use TCP. Shared memory needs memfd_create and access to /proc/PID/fd of ' +
          'the other ranks: the same user, the same /proc, and no seccomp rule against it.'
        : 'The ranks of this host use TCP. Shared memory needs koffi.'
      return { found: problem, advice }
    }
    const room =
      size === undefined || free === undefined
        ? 'no /dev/shm, which is not needed'
        : `/dev/shm: ${formatBytes(free)} of ${formatBytes(size)} free`
    return { found: `memfd and /proc/PID/fd work; ${room}` }
  },

  threads({ cores: { allowed, all, quota, usable } }) {
    const of = allowed === all ? '' : ` of ${all}`
    const found = `${allowed}${of} ${all === 1 ? 'core' : 'cores'}; --nproc auto starts ${usable}`
    if (quota === undefined || quota >= allowed) return { found }
    const time = Number(quota.toFixed(2))
    const advice = `The quota of the cgroup is the CPU time of ${time} ${time === 1 ? 'core' : 'cores'}; more ranks are no faster.`
    return { found, advice }
  },

  limits({ limits, cores }) {
    const { 'ulimit -v': addresses, 'open files': files, ...processes } = limits
    const set = Object.entries(limits).filter(([, limit]) => Number.isFinite(limit))
    const found =
      set.length === 0 ? 'none' : set.map(([limit, value]) => `${limit}: ${value}`).join(', ')
    const isSmall =
      Math.min(...Object.values(processes)) < cores.usable * RANK.threads ||
      addresses < RANK.addresses ||
      files < RANK.files
    const advice = `Raise the limits (ulimit -n for open files), or start fewer ranks: a rank has about ${RANK.threads} threads and needs ${RANK.files} open files and 4 GB of addresses.`
    return { found, advice: isSmall ? advice : undefined }
  },

  memory({ memory }) {
    const speed = (memory.copied / 1e9).toFixed(1)
    return { found: `${formatBytes(memory.size)}; one core copies ${speed} GB/s` }
  },
}

/** The backend that `auto` selects unless another backend is set up. */
const DEFAULT = 'wasm'

function judgeBackend(backend: Facts['backends'][number], { gpus }: Facts): Outcome {
  if (backend.works) {
    const { version: of, device, threads } = backend
    const parts = [
      of,
      device ?? [],
      threads === undefined ? [] : `${threads} ${threads === 1 ? 'thread' : 'threads'}`,
    ]
    return { found: `trains (${parts.flat().join(', ')})` }
  }
  const { name, reason, missing } = backend
  return {
    found: reason,
    advice: adviceFor(name, missing, gpus.nvidia.length > 0),
    state: name === DEFAULT ? 'problem' : 'note',
  }
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

const checksOfLibraries: Checks = {
  TensorFlow({ tensorflow, gpus }) {
    if ('problem' in tensorflow) {
      return {
        found: tensorflow.problem,
        advice: 'npx tsrun setup tensorflow installs it again.',
      }
    }
    const { manifest } = tensorflow
    // Without a manifest, the check of the backend reports that TensorFlow is not set up.
    if (manifest === undefined) return undefined
    const { folder, request, kernels } = manifest
    const found = describe(manifest)
    if (manifest.package === '@tensorflow/tfjs-node' && gpus.nvidia.length > 0) {
      return {
        found: `${found}, although there are GPUs`,
        advice: 'npx tsrun setup tensorflow --gpu',
      }
    }
    if (!hasCurrentBinding(manifest)) {
      return {
        found: `${found}, with the kernels of another tsrun, which are not used`,
        advice: 'npx tsrun setup tensorflow makes those of this one.',
      }
    }
    if (kernels !== false) return { found }
    const advice = `${join(dirname(folder), 'setup.log')} says why. --wheel names another TensorFlow; remove ${folder} to try again.`
    return {
      found: `${found}: small layers are slower`,
      // An installation with `tsrun setup --official` never has tsrun's kernels.
      advice: request.official ? undefined : advice,
    }
  },

  BLAS({ blas: { library, origin, kernels, problems: details } }) {
    const found = library === null ? 'none' : `${library}, kernels ${kernels}, from ${origin}`
    const advice =
      'For faster products of matrices: npx tsrun setup blas, unless TSRUN_BLAS names another one or is ' +
      `off; or ${systemAdvice}.`
    return { found, advice: library === null ? advice : undefined, details }
  },

  GPUs({ gpus: { nvidia, topology, problem } }) {
    if (problem !== undefined) {
      const advice =
        'The driver of the GPU does not answer: check nvidia-smi, or give the container access to the GPUs.'
      return { found: problem, advice }
    }
    if (nvidia.length === 0) return { found: 'no NVIDIA GPU (there is no nvidia-smi)' }
    const count = nvidia.length === 1 ? '1 NVIDIA GPU' : `${nvidia.length} NVIDIA GPUs`
    return { found: count, details: [...nvidia, ...topology] }
  },
}

/** Judges the facts about a host, in the order of the report. */
export function judge(facts: Facts): Finding[] {
  const outcomesOf = (checks: Checks) =>
    Object.entries(checks).map(([name, check]) => [name, check(facts)] as const)
  const ofBackends = facts.backends.map(
    (backend) => [`backend ${backend.name}`, judgeBackend(backend, facts)] as const,
  )
  const outcomes = [...outcomesOf(checksOfHost), ...ofBackends, ...outcomesOf(checksOfLibraries)]
  return outcomes.flatMap(([name, outcome]) => {
    if (outcome === undefined) return []
    return [{ name, state: outcome.advice === undefined ? 'ok' : 'note', ...outcome }]
  })
}
