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
import {
  type BackendFacts,
  correctNegativeAxes,
  type KernelCall,
  loadedModules,
  replaceKernel,
  runKernel,
  tf,
} from '@tsrun/training/backends'
import { currentEager, threadCount, type NodeBackend } from './eager.ts'
import { installPadding } from './padding.ts'
import { installPoolGradient } from './pooling.ts'

const HOW = 'run `npx tsrun setup tensorflow`'
/** Advice for the case that Node's permission model denies access, keyed by error code. */
const permissions: Readonly<Record<string, string>> = {
  ERR_DLOPEN_DISABLED: 'give Node --allow-addons',
  ERR_ACCESS_DENIED: 'give Node --allow-fs-read for that folder',
}
/** The time limit of nvidia-smi in milliseconds. The GPU driver is already loaded. */
const NVIDIA_SMI_TIMEOUT = 10_000

/** Loads TensorFlow through the binding of @tensorflow/tfjs-node that `tsrun setup` has built. */
export async function loadTensorFlow(): Promise<BackendFacts> {
  const manifest = readTensorFlowManifest()
  if (manifest === undefined) throw new Error(`it is not set up: ${HOW}`)
  const { system } = manifest
  if (system !== thisSystem) {
    throw new Error(`it is set up for ${system}, and this Node is ${thisSystem}: ${HOW} with it`)
  }
  if (!tf.engine().backendNames().includes('tensorflow')) register(manifest)
  if (!(await tf.setBackend('tensorflow'))) throw new Error('it could not be initialized')
  const { isUsingGpuDevice } = tf.backend() as unknown as NodeBackend
  if (manifest.package === '@tensorflow/tfjs-node-gpu' && !isUsingGpuDevice && !gpusAreHidden()) {
    throw new Error(
      `it is set up for GPUs and finds none (TF_CPP_MIN_LOG_LEVEL=0 shows why): ${hintFor(manifest)}, ` +
        'or set CUDA_VISIBLE_DEVICES to nothing to compute on the CPU',
    )
  }
  return { device: isUsingGpuDevice ? await nameOfGpu() : 'CPU', threads: threadCount() }
}

/** Returns the name of the first visible GPU, which TensorFlow.js does not report. */
async function nameOfGpu(): Promise<string> {
  const [first = '0'] = (process.env['CUDA_VISIBLE_DEVICES'] ?? '0').split(',')
  const args = ['--query-gpu=name', '--format=csv,noheader', `--id=${first.trim()}`]
  const options = { timeout: NVIDIA_SMI_TIMEOUT }
  const output = await promisify(execFile)('nvidia-smi', args, options).catch(() => undefined)
  const name = output?.stdout.split('\n')[0]!.trim() ?? ''
  return name === '' ? 'GPU' : name
}

/** The dynamic linker reads its search path at process start, so `tsrun` sets the path for the ranks. */
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
  // By default, TensorFlow logs its CPU instruction sets in every process, and logs hidden GPUs as
  // an error.
  process.env['TF_CPP_MIN_LOG_LEVEL'] ??= gpusAreHidden() ? '3' : '2'
  const require = createRequire(join(folder, 'any.js'))
  try {
    for (const [request, ours] of loadedModules()) {
      // tfjs-node depends on TensorFlow.js, and would load a second engine that does not know our
      // tensors.
      require.cache[require.resolve(request)] = ours
    }
    require(name)
    installFusedMatMul()
    installPadding()
    installPoolGradient()
    correctNegativeAxes('tensorflow')
    installStep()
    installColumnSum()
  } catch (cause) {
    const { code = '', message } = cause as NodeJS.ErrnoException
    const [reason] = message.split('\n')
    const how = permissions[code] ?? `${HOW} again`
    throw new Error(`the installation in ${folder} does not load (${reason!}): ${how}`, { cause })
  }
}

/**
 * Makes the fused matMul of the tensorflow backend accept kernel inputs (TensorInfo), like other
 * backends. The original calls operations, which accept only tensors. Activations with parameters
 * still use the original.
 */
function installFusedMatMul(): void {
  type Call = KernelCall<'a' | 'b', { readonly activation: string }>
  replaceKernel<Call>('_FusedMatMul', 'tensorflow', (original) => (call) => {
    const { a, b, bias } = call.inputs
    const { activation } = call.attrs
    if (activation !== 'linear' && activation !== 'relu') return original(call)
    return tf.tidy(() => {
      const product = runKernel('BatchMatMul', { a, b }, call.attrs)
      const sum = bias === undefined ? product : runKernel('Add', { a: product, b: bias })
      return activation === 'relu' ? runKernel('Relu', { x: sum }) : sum
    })
  })
}

/**
 * Computes the gradient of ReLU in two operations instead of seven. On small tensors, two operations take a
 * sixth of the time.
 */
function installStep(): void {
  replaceKernel<KernelCall<'x'>>('Step', 'tensorflow', (original) => (call) => {
    const { x } = call.inputs
    if (call.attrs['alpha'] !== 0 || x.dtype !== 'float32') return original(call)
    return tf.tidy(() => runKernel('Relu', { x: runKernel('Sign', { x }) }))
  })
}

/** `installColumnSum` replaces sums of at least FEWEST_COLUMNS columns over at most MOST_ROWS rows. */
const [FEWEST_COLUMNS, MOST_ROWS] = [16, 2 ** 20]

/**
 * Sums the columns on the CPU by the operation for the gradient of a bias. For rows of many values, it
 * takes a third to a fifth of the time of TensorFlow's sum. The order of its additions, and so the
 * rounding, depends on the number of threads.
 */
function installColumnSum(): void {
  replaceKernel<KernelCall<'x'>>('Sum', 'tensorflow', (original) => (call) => {
    const { x } = call.inputs
    const { axis, keepDims } = call.attrs
    const eager = currentEager()!
    const axes = tf.util.parseAxisParam(axis as number[], [...x.shape])
    const columns = x.shape.at(-1) ?? 0
    const rows = tf.util.sizeFromShape([...x.shape.slice(0, -1)])
    const last = x.shape.length - 1
    const isOfColumns = last > 0 && new Set(axes).size === last && !axes.includes(last)
    const isOfSize = columns >= FEWEST_COLUMNS && rows > 0 && rows <= MOST_ROWS
    const isFloat = x.dtype === 'float32' && keepDims !== true
    if (!isOfColumns || !isOfSize || !isFloat || !eager.isOnHost) return original(call)
    return eager.takeScoped(eager.biasGradient(x), [columns])
  })
}
