import { libraryPath, readTensorFlowManifest } from '@tsrun/core'
import { BINDING_REVISION } from '../../../internals/doctor.ts'

/** Where the user has set TensorFlow up: tests run with a TSRUN_HOME of their own. */
const home = { TSRUN_HOME: process.env['TSRUN_TESTS_HOME'] ?? '' }
const manifest = readTensorFlowManifest(home)

/**
 * What a process needs in its environment to use tensorflow, with products of 24 bits on GPUs too;
 * undefined where it is not set up.
 */
export const tensorflow: Readonly<Record<string, string>> | undefined = manifest && {
  ...home,
  LD_LIBRARY_PATH: libraryPath(manifest, process.env),
  NVIDIA_TF32_OVERRIDE: '0',
}

/** Whether its binding defines functions: a set-up of before does not. */
export const hasFunctions = manifest?.bindingRevision === BINDING_REVISION

/**
 * Whether its binding has the kernels of these sources, and computes on the CPU: a set-up of before has
 * others, or none, and tensors of GPUs are not for them.
 */
export const hasKernels =
  manifest?.bindingRevision === BINDING_REVISION &&
  manifest.kernels !== false &&
  manifest.package === '@tensorflow/tfjs-node'
