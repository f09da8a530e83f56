import { readTensorFlowManifest } from '@tsrun/core'
import { isAvailable } from '@tsrun/native'
import { findDevices } from '../plan/devices.ts'
import { listGpus } from '../plan/gpu-list.ts'
import type { Facts, TensorFlowFacts } from './facts.ts'
import { probeBackends } from './gather/backends.ts'
import { readAutogroups, readCores, readOpenFiles, trySharedMemory } from './gather/host.ts'
import { findMpi, readGpus } from './gather/devices.ts'
import { readNode, readNpm } from './gather/node.ts'

/**
 * Looks at this host; processes that do not answer are given up.
 *
 * @param signal - ends the slow part of it
 */
export async function gatherFacts(
  env: NodeJS.ProcessEnv,
  cwd: string,
  signal: AbortSignal,
): Promise<Facts> {
  const tensorflow = readTensorFlow(env)
  const hasTensorFlow = 'manifest' in tensorflow && tensorflow.manifest !== undefined
  const list = listGpus(env)
  const [npm, gpus, mpi] = await Promise.all([readNpm(cwd), readGpus(list, env), findMpi(env)])
  return {
    node: readNode(env, cwd),
    npm,
    native: isAvailable(),
    sharedMemory: await trySharedMemory(),
    autogroups: readAutogroups(),
    openFiles: readOpenFiles(),
    cores: readCores(),
    backends: await probeBackends(env, cwd, {
      hasTensorFlow,
      devices: findDevices(env, list),
      signal,
    }),
    tensorflow,
    gpus,
    mpi,
  }
}

function readTensorFlow(env: NodeJS.ProcessEnv): TensorFlowFacts {
  try {
    return { manifest: readTensorFlowManifest(env) }
  } catch (error) {
    return { problem: (error as Error).message }
  }
}
