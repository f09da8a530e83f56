import { createRequire } from 'node:module'
import { join } from 'node:path'
import {
  readTensorFlowManifest,
  restoreLegacyUtil,
  thisSystem,
  type TensorFlowManifest,
} from '@tsrun/core'
import type { BackendFacts } from './backend.ts'
import { loadedModules, tf } from './tensorflow.ts'
import { installFusedMatMul, installStep } from './tfjs-node-kernels.ts'
import { threadCount } from './threads.ts'

const HOW = 'run `npx tsrun setup tensorflow`'

interface NodeBackend {
  readonly isUsingGpuDevice: boolean
}

/** TensorFlow itself, through the binding of @tensorflow/tfjs-node that `tsrun setup` has built. */
export async function loadTensorFlow(): Promise<BackendFacts> {
  const manifest = readTensorFlowManifest()
  if (manifest === undefined) throw new Error(`it is not set up: ${HOW}`)
  const { system, devices } = manifest
  if (system !== thisSystem) {
    throw new Error(`it is set up for ${system}, and this Node is ${thisSystem}: ${HOW} with it`)
  }
  if (!tf.engine().backendNames().includes('tensorflow')) register(manifest)
  if (!(await tf.setBackend('tensorflow'))) throw new Error('it could not be initialised')
  const { isUsingGpuDevice } = tf.backend() as unknown as NodeBackend
  if (manifest.package === '@tensorflow/tfjs-node-gpu' && !isUsingGpuDevice && !gpusAreHidden()) {
    throw new Error(
      'it is set up for GPUs and finds none (TF_CPP_MIN_LOG_LEVEL=0 shows why): look at nvidia-smi, ' +
        'or set CUDA_VISIBLE_DEVICES to nothing to compute on the CPU',
    )
  }
  const [gpu = 'GPU'] = devices
  return { device: isUsingGpuDevice ? gpu : 'CPU', threads: threadCount() }
}

function register({ folder, package: name }: TensorFlowManifest): void {
  restoreLegacyUtil()
  // Else TensorFlow tells every process about its instruction sets.
  process.env['TF_CPP_MIN_LOG_LEVEL'] ??= '2'
  const require = createRequire(join(folder, 'any.js'))
  try {
    for (const [request, ours] of loadedModules()) {
      // The package brings TensorFlow.js along: a second engine, in which our tensors are unknown.
      require.cache[require.resolve(request)] = ours
    }
    require(name)
    installFusedMatMul()
    installStep()
  } catch (cause) {
    const [reason] = (cause as Error).message.split('\n')
    throw new Error(`what was set up in ${folder} does not load (${reason!}): ${HOW} again`, {
      cause,
    })
  }
}

/** An empty list, or an index that there is not, hides all GPUs (CUDA programming guide). */
function gpusAreHidden(): boolean {
  const visible = process.env['CUDA_VISIBLE_DEVICES']
  return visible === '' || visible === '-1'
}
