import { execFile } from 'node:child_process'
import { createRequire } from 'node:module'
import { delimiter, join } from 'node:path'
import { promisify } from 'node:util'
import {
  gpusAreHidden,
  libraryPath,
  readTensorFlowManifest,
  restoreLegacyUtil,
  thisSystem,
  type TensorFlowManifest,
} from '@tsrun/core'
import type { BackendFacts } from './backend.ts'
import { loadedModules, tf } from './tfjs.ts'
import { installFusedMatMul, installStep } from './tensorflow/kernels.ts'
import { threadCount } from './tensorflow/threads.ts'

const HOW = 'run `npx tsrun setup tensorflow`'
/** Milliseconds: the driver is awake when it is asked. */
const LONGEST_QUESTION = 10_000

interface NodeBackend {
  readonly isUsingGpuDevice: boolean
}

/** TensorFlow itself, through the binding of @tensorflow/tfjs-node that `tsrun setup` has built. */
export async function loadTensorFlow(): Promise<BackendFacts> {
  const manifest = readTensorFlowManifest()
  if (manifest === undefined) throw new Error(`it is not set up: ${HOW}`)
  const { system } = manifest
  if (system !== thisSystem) {
    throw new Error(`it is set up for ${system}, and this Node is ${thisSystem}: ${HOW} with it`)
  }
  if (!tf.engine().backendNames().includes('tensorflow')) register(manifest)
  if (!(await tf.setBackend('tensorflow'))) throw new Error('it could not be initialised')
  const { isUsingGpuDevice } = tf.backend() as unknown as NodeBackend
  if (manifest.package === '@tensorflow/tfjs-node-gpu' && !isUsingGpuDevice && !gpusAreHidden()) {
    throw new Error(
      `it is set up for GPUs and finds none (TF_CPP_MIN_LOG_LEVEL=0 shows why): ${hintFor(manifest)}, ` +
        'or set CUDA_VISIBLE_DEVICES to nothing to compute on the CPU',
    )
  }
  return { device: isUsingGpuDevice ? await nameOfGpu() : 'CPU', threads: threadCount() }
}

/** Of the first one that this process sees; TensorFlow.js has no word for it. */
async function nameOfGpu(): Promise<string> {
  const [first = '0'] = (process.env['CUDA_VISIBLE_DEVICES'] ?? '0').split(',')
  const args = ['--query-gpu=name', '--format=csv,noheader', `--id=${first.trim()}`]
  const options = { timeout: LONGEST_QUESTION }
  const asked = await promisify(execFile)('nvidia-smi', args, options).catch(() => undefined)
  const answer = asked?.stdout.split('\n')[0]!.trim() ?? ''
  return answer === '' ? 'GPU' : answer
}

/** The dynamic linker reads the path at the start of a process only: `tsrun` sets it for its ranks. */
function hintFor(manifest: TensorFlowManifest): string {
  const path = (process.env['LD_LIBRARY_PATH'] ?? '').split(delimiter)
  if (manifest.libraryFolders.every((folder) => path.includes(folder))) return 'look at nvidia-smi'
  return (
    'start it with tsrun, which tells it where the CUDA libraries are, or with ' +
    `LD_LIBRARY_PATH=${libraryPath(manifest, {})}`
  )
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
