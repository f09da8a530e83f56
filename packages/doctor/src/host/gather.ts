import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import {
  choice,
  count,
  either,
  flag,
  object,
  parseJson,
  readTensorFlowManifest,
  text,
  thisSystem,
  type Of,
} from '@tsrun/core'
import { isAvailable } from '@tsrun/native'
import {
  deviceEnvironment,
  findDevices,
  type Devices,
  gpusOfHost,
  lastLineOf,
  processLimits,
  resolveFrom,
  runProgram,
  type RunOptions,
  softLimit,
} from '@tsrun/launcher/host'
import { packageFolder } from '../package-folder.ts'
import { LONGEST_START } from '../setup/proof.ts'
import { findBlas, measureMemory, readCores, readGpus, trySharedMemory } from './machine.ts'

export type Facts = Awaited<ReturnType<typeof gatherFacts>>

/** @param signal - stops the tests of the backends, which take most of the time */
export async function gatherFacts(env: NodeJS.ProcessEnv, cwd: string, signal: AbortSignal) {
  const tensorflow = readTensorFlow(env)
  const { list } = gpusOfHost(env)
  const [gpus, blas] = await Promise.all([readGpus(list, env), findBlas(env, signal)])
  return {
    node: { version: process.version, system: thisSystem },
    native: isAvailable(),
    sharedMemory: await trySharedMemory(),
    limits: {
      ...processLimits(),
      /** Node raises the limit on open files to the maximum, and ranks inherit it. */
      'open files': softLimit('Max open files') ?? Infinity,
    },
    cores: readCores(),
    memory: measureMemory(),
    backends: await tryBackends(
      env,
      cwd,
      tensorflow.manifest !== undefined,
      findDevices(env, () => list),
      signal,
    ),
    tensorflow,
    blas,
    gpus,
  }
}

/** Finds the installation of `tsrun setup tensorflow`, if any. Returns `problem` if it cannot be used. */
function readTensorFlow(env: NodeJS.ProcessEnv) {
  try {
    return { manifest: readTensorFlowManifest(env) }
  } catch (error) {
    return { problem: (error as Error).message }
  }
}

/** Milliseconds to load a backend and train one step. */
const LIMIT = 120_000
const probe = fileURLToPath(new URL('dist/probe.js', packageFolder))

const probeOutcome = either(
  object({
    works: choice(true),
    version: text,
    device: text.optional(),
    threads: count().optional(),
  }),
  object({ works: choice(false), reason: text, missing: flag }),
)

/** The result of training one step in a new process. */
type BackendFacts = { readonly name: string } & Of<typeof probeOutcome>

/** Trains a step with every installed backend, one after the other, each in a separate process. */
async function tryBackends(
  env: NodeJS.ProcessEnv,
  cwd: string,
  hasTensorFlow: boolean,
  devices: Devices,
  signal: AbortSignal,
): Promise<BackendFacts[]> {
  const places = [join(cwd, 'any.js'), import.meta.url]
  const training = resolveFrom(places, '@tsrun/training')
  const missing = (name: string, reason: string): BackendFacts => ({
    name,
    works: false,
    reason,
    missing: true,
  })
  if (training === undefined) {
    return [missing('wasm', 'the package @tsrun/training is not installed')]
  }
  // Use the environment that a job with a single rank has.
  const rank = { ...env, ...deviceEnvironment(devices, env, 0, 1) }
  const facts: BackendFacts[] = []
  for (const name of ['wasm', 'cpu', 'tensorflow', 'webgpu']) {
    if (name === 'tensorflow' && !hasTensorFlow) facts.push(missing(name, 'not set up'))
    else if (name === 'webgpu' && resolveFrom([training, ...places], name) === undefined) {
      facts.push(missing(name, 'the package webgpu is not installed'))
    } else {
      // On a GPU, TensorFlow may have to compile its kernels first.
      const limit = name === 'tensorflow' && devices.gpus.length > 0 ? LONGEST_START : LIMIT
      facts.push(await tryBackend(name, training, { env: rank, limit, signal }))
    }
  }
  return facts
}

async function tryBackend(
  name: string,
  training: string,
  options: RunOptions,
): Promise<BackendFacts> {
  const args = [probe, name, pathToFileURL(training).href]
  const { stdout, stderr, failure } = await runProgram(process.execPath, args, options)
  const line = stdout.split('\n').findLast((each) => each.startsWith('{'))
  const outcome = parseJson(line ?? '', probeOutcome)
  if (outcome !== undefined) return { name, ...outcome }
  const reason = [failure ?? 'it printed nothing', lastLineOf(stderr)].filter(Boolean).join(': ')
  return { name, works: false, reason, missing: false }
}
