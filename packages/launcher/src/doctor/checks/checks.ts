import type { Check } from '../finding.ts'
import { checkBackends, checkGpus, checkMpi, checkTensorFlow } from './devices.ts'
import {
  checkNative,
  checkOpenFiles,
  checkScheduler,
  checkSharedMemory,
  checkThreads,
} from './host.ts'
import { checkInstallScripts, checkNode, checkTypeScript } from './node.ts'

/** In the order of the page. */
export const checks: readonly Check[] = [
  checkNode,
  checkTypeScript,
  checkInstallScripts,
  checkNative,
  checkSharedMemory,
  checkScheduler,
  checkOpenFiles,
  checkThreads,
  checkBackends,
  checkTensorFlow,
  checkGpus,
  checkMpi,
]
