import { dirname, join } from 'node:path'
import type { Facts } from '../facts.ts'
import type { Finding } from '../finding.ts'

/** What `auto` takes where nothing is set up: without it nothing trains. */
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
      ? 'npm install webgpu @tensorflow/tfjs-backend-webgpu, for GPUs of any maker.'
      : 'See docs/webgpu.md: it needs a driver for Vulkan, and TSRUN_WEBGPU_ADAPTER may choose one.'
  }
  return missing
    ? 'npm install @tsrun/training'
    : 'npm ci, or take node_modules away and install again.'
}

export function checkTensorFlow({ tensorflow, gpus }: Facts): Finding[] {
  const name = 'TensorFlow'
  if ('problem' in tensorflow) {
    const advice = 'npx tsrun setup tensorflow makes a new one.'
    return [{ name, state: 'note', found: tensorflow.problem, advice }]
  }
  const { manifest } = tensorflow
  // the line of the backend says it
  if (manifest === undefined) return []
  const { tensorflowVersion, packageVersion, devices, folder, request, kernels } = manifest
  const set = `${tensorflowVersion} behind ${manifest.package} ${packageVersion}, on ${devices.join(', ')}`
  const finding: Finding = { name, state: 'ok', found: set, details: [`in ${folder}`] }
  if (manifest.package === '@tensorflow/tfjs-node' && gpus.nvidia.length > 0) {
    const advice = 'npx tsrun setup tensorflow --gpu'
    return [{ ...finding, state: 'note', found: `${set}, although there are GPUs`, advice }]
  }
  if (kernels !== false) return [finding]
  const found = `${set}, without the kernels of tsrun: small layers are slower`
  // --official never has them
  if (request.official) return [{ ...finding, found }]
  const advice = `${join(dirname(folder), 'setup.log')} says why; --wheel names another TensorFlow, and without ${folder} the next set-up tries again.`
  return [{ ...finding, state: 'note', found, advice }]
}

export function checkGpus({ gpus }: Facts): Finding[] {
  const name = 'GPUs'
  const { nvidia, topology, problem } = gpus
  if (problem !== undefined) {
    const advice =
      'The driver of the GPU does not answer: see nvidia-smi, or give the container GPUs.'
    return [{ name, state: 'note', found: problem, advice }]
  }
  if (nvidia.length === 0) {
    return [{ name, state: 'ok', found: 'none of NVIDIA (no nvidia-smi here)' }]
  }
  const found = nvidia.length === 1 ? '1 of NVIDIA' : `${nvidia.length} of NVIDIA`
  return [{ name, state: 'ok', found, details: [...nvidia, ...topology] }]
}

export function checkMpi({ mpi, native }: Facts): Finding[] {
  const name = 'MPI'
  const { libraries, mpirun } = mpi
  if (libraries.length === 0) {
    const advice = 'TSRUN_LIBMPI names the library where there is one: docs/mpi.md.'
    if (mpirun !== undefined) {
      return [{ name, state: 'note', found: `${mpirun}, but no libmpi`, advice }]
    }
    return [{ name, state: 'ok', found: 'none, not needed' }]
  }
  const found = [mpirun ?? 'no mpirun', ...libraries].join(', ')
  if (native.available) return [{ name, state: 'ok', found }]
  return [{ name, state: 'note', found, advice: 'The transport mpi needs koffi.' }]
}
