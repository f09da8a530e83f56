import { readTensorFlowManifest } from '@tsrun/core'
import { BINDING_REVISION } from '../../../../packages/launcher/src/setup/binding.ts'

/** Where the user has set TensorFlow up: tests run with a TSRUN_HOME of their own. */
const home = { TSRUN_HOME: process.env['TSRUN_TESTS_HOME'] ?? '' }
const manifest = readTensorFlowManifest(home)

/** What a process needs in its environment to use tensorflow; undefined where it is not set up. */
export const tensorflow = manifest === undefined ? undefined : home

/** Whether its binding has the kernels of these sources: a set-up of before has others, or none. */
export const hasKernels = manifest?.bindingRevision === BINDING_REVISION
