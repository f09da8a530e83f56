import { mkdtempSync, rmSync } from 'node:fs'
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
import { BINDING_REVISION } from './binding.ts'
import { removeAbandoned, install } from './install.ts'
import { TFJS_VERSION } from './pins.ts'
import { gpuAdvice, type IdleGpus, prove, type Proof } from './proof.ts'
import type { ToolContext } from './tool.ts'

const needsGpu =
  'jobs that use this installation need a GPU, or CUDA_VISIBLE_DEVICES set to nothing'

/** The context of a set-up without the log, which the set-up opens. */
type SetupContext = Omit<ToolContext, 'log'>

/** Reports whether TensorFlow works. @returns false also if a GPU installation finds no GPU */
export async function checkTensorFlow(context: SetupContext): Promise<boolean> {
  const { works, sentence, idleGpus } = await examine(context)
  context.say(sentence)
  return works && idleGpus === undefined
}

/**
 * Installs TensorFlow unless it is already installed.
 *
 * @throws ERR_TSR_SETUP, or the abort reason of the context's signal
 */
export async function setUpTensorFlow(
  context: SetupContext,
  request: TensorFlowRequest,
): Promise<void> {
  const { env, say } = context
  const home = tensorflowHome(env)
  const { works, sentence, manifest, idleGpus } = await examine(context)
  if (works && manifest !== undefined && idleGpus?.listed !== true && fits(manifest, request)) {
    removeAbandoned(home, manifest.folder)
    say(`${sentence}; there is nothing to do`)
    return
  }
  say(`installing into ${home} (TSRUN_HOME chooses another folder)`)
  const made = await install({ ...context, log: join(home, 'setup.log') }, request, manifest)
  if (request.gpu && made.devices.includes('CPU')) {
    say(describe(made))
    say(`no GPU is visible here: ${needsGpu}`)
  } else {
    say(`${describe(made)}; TSRUN_BACKEND=auto uses it from now on`)
  }
}

interface State {
  readonly works: boolean
  readonly sentence: string
  readonly manifest: TensorFlowManifest | undefined
  readonly idleGpus?: IdleGpus | undefined
}

async function examine(context: SetupContext): Promise<State> {
  let manifest: TensorFlowManifest | undefined
  try {
    manifest = readTensorFlowManifest(context.env)
  } catch (error) {
    if (!isTsrError(error)) throw error
    return { works: false, sentence: error.message, manifest: undefined }
  }
  if (manifest === undefined) {
    const sentence = `TensorFlow is not set up in ${tensorflowHome(context.env)}: run \`npx tsrun setup tensorflow\``
    return { works: false, sentence, manifest }
  }
  const proof = await proveQuietly(context, manifest)
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

/** Describes unused GPUs, without which ranks cannot load the backend. */
function describeIdle({ reason, listed }: IdleGpus): string {
  return listed
    ? `but jobs need the GPUs and TensorFlow finds none (${reason}): ${gpuAdvice}`
    : `and no GPU is visible here (${reason}): ${needsGpu}`
}

async function proveQuietly(context: SetupContext, manifest: TensorFlowManifest): Promise<Proof> {
  if (manifest.system !== thisSystem) {
    return {
      works: false,
      problem: `it was made for ${manifest.system}, and this is ${thisSystem}`,
    }
  }
  const folder = mkdtempSync(join(tmpdir(), 'tsrun-setup-check-'))
  try {
    return await prove({ ...context, log: join(folder, 'log') }, manifest)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Whether the installation matches `request`. A request without a source accepts any source. */
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
