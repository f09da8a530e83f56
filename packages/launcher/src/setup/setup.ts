import { rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import {
  isTsrError,
  readTensorFlowManifest,
  tensorflowHome,
  thisSystem,
  type TensorFlowManifest,
  type TensorFlowRequest,
} from '@tsrun/core'
import { readSetupArguments, setupHelp } from './arguments.ts'
import { BINDING_REVISION } from './binding.ts'
import { removeAbandoned, install } from './install.ts'
import { TFJS_VERSION } from './npm-packages.ts'
import { gpuAdvice, type IdleGpus, prove, type Proof } from './proof.ts'
import type { Workshop } from './tool.ts'

const needsGpu = 'jobs that use this set-up need one, or an empty CUDA_VISIBLE_DEVICES'

interface SetupContext {
  readonly env: NodeJS.ProcessEnv
  readonly cwd: string
  /** Aborted when the user interrupts. */
  readonly signal: AbortSignal
  readonly print: (text: string) => void
}

/**
 * `tsrun setup …`
 *
 * @param argv - what follows `setup`
 * @returns the exit code: 0 when TensorFlow is set up and works, 1 when `--check` finds that not
 * @throws ERR_TSR_USAGE, ERR_TSR_SETUP; the reason of the signal
 */
export async function runSetup(argv: readonly string[], context: SetupContext): Promise<number> {
  const { env, cwd, signal, print } = context
  const { action, request } = readSetupArguments(argv, cwd)
  if (action === 'help') {
    print(setupHelp)
    return 0
  }
  const say = (sentence: string): void => {
    print(`tsrun setup: ${sentence}\n`)
  }
  const state = await look({ env, signal, say })
  if (action === 'check') {
    say(state.sentence)
    return state.works && state.idleGpus === undefined ? 0 : 1
  }
  const { manifest, idleGpus } = state
  const works = state.works && idleGpus?.listed !== true
  if (works && manifest !== undefined && fits(manifest, request)) {
    removeAbandoned(tensorflowHome(env), manifest.folder)
    say(`${state.sentence}; nothing is to be done`)
    return 0
  }
  say(`into ${tensorflowHome(env)}, a folder of yours; TSRUN_HOME names another`)
  const log = join(tensorflowHome(env), 'setup.log')
  const made = await install({ env, signal, say, log }, request, manifest)
  if (request.gpu && made.devices.includes('CPU')) {
    say(describe(made))
    say(`no GPU is visible here: ${needsGpu}`)
  } else {
    say(`${describe(made)}; TSRUN_BACKEND=auto takes it from now on`)
  }
  return 0
}

interface State {
  readonly works: boolean
  readonly sentence: string
  readonly manifest: TensorFlowManifest | undefined
  readonly idleGpus?: IdleGpus | undefined
}

async function look(place: Omit<Workshop, 'log'>): Promise<State> {
  let manifest: TensorFlowManifest | undefined
  try {
    manifest = readTensorFlowManifest(place.env)
  } catch (error) {
    if (!isTsrError(error)) throw error
    return { works: false, sentence: error.message, manifest: undefined }
  }
  if (manifest === undefined) {
    const sentence = `TensorFlow is not set up in ${tensorflowHome(place.env)}: run \`npx tsrun setup tensorflow\``
    return { works: false, sentence, manifest }
  }
  const proof = await proveQuietly(place, manifest)
  if (!proof.works) {
    const again = 'run `npx tsrun setup tensorflow` again'
    const sentence = `${describe(manifest)}, but it does not work (${proof.problem}): ${again}`
    return { works: false, sentence, manifest }
  }
  const { devices, idleGpus } = proof
  const found = describe({ ...manifest, devices })
  const sentence = idleGpus === undefined ? found : `${found}, ${describeIdle(idleGpus)}`
  return { works: true, sentence, manifest, idleGpus }
}

/** Ranks are refused then, whether or not this host has GPUs. */
function describeIdle({ reason, listed }: IdleGpus): string {
  return listed
    ? `but jobs need the GPUs, and it finds none (${reason}): ${gpuAdvice}`
    : `and no GPU is visible here (${reason}): ${needsGpu}`
}

async function proveQuietly(
  place: Omit<Workshop, 'log'>,
  manifest: TensorFlowManifest,
): Promise<Proof> {
  if (manifest.system !== thisSystem) {
    return { works: false, problem: `it is for ${manifest.system}, and this is ${thisSystem}` }
  }
  const log = join(tmpdir(), `tsrun-setup-check-${process.pid}.log`)
  try {
    writeFileSync(log, '')
    return await prove({ ...place, log }, manifest)
  } finally {
    rmSync(log, { force: true })
  }
}

/** Whether it is what is asked for now. Who names no source takes the one that is there. */
function fits(manifest: TensorFlowManifest, request: TensorFlowRequest): boolean {
  const { gpu, official, wheel, python } = manifest.request
  const named = request.official || request.wheel !== null || request.python !== null
  const sameSource =
    official === request.official && wheel === request.wheel && python === request.python
  const isOurs = official || manifest.bindingRevision === BINDING_REVISION
  const isCurrent = isOurs && manifest.packageVersion === TFJS_VERSION
  return isCurrent && gpu === request.gpu && (!named || sameSource)
}

function describe(manifest: TensorFlowManifest): string {
  const { tensorflowVersion, package: name, packageVersion, devices, folder } = manifest
  const kernels = manifest.kernels === false ? ', without the kernels of tsrun' : ''
  return (
    `TensorFlow ${tensorflowVersion} is set up on ${devices.join(', ')} ` +
    `(${name} ${packageVersion}${kernels}, in ${folder})`
  )
}
