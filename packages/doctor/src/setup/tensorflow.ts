import { join } from 'node:path'
import {
  readTensorFlowManifest,
  thisSystem,
  type TensorFlowManifest,
  type TensorFlowRequest,
} from '@tsrun/core'
import { BINDING_REVISION, compileBinding } from './binding.ts'
import {
  folderOfPackage,
  getWheel,
  installOfficially,
  installPackages,
  libraryFoldersOf,
  needsPython,
} from './packages.ts'
import { TFJS_VERSION } from './pins.ts'
import { gpuAdvice, type IdleGpus, prove } from './proof.ts'
import type { Component, Installation } from './setup.ts'
import { findCompiler, findNpm, findPython, setupError, type ToolContext } from './tool.ts'

const needsGpu =
  'jobs that use this installation need a GPU, or CUDA_VISIBLE_DEVICES set to nothing'

/** TensorFlow and its binding, for `tsrun setup tensorflow` with the flags of `request`. */
export function tensorflowComponent(request: TensorFlowRequest): Component {
  return {
    name: 'tensorflow',
    title: 'TensorFlow',
    find(env) {
      const manifest = readTensorFlowManifest(env)
      if (manifest === undefined) return undefined
      const test: Installation['test'] = async (context) => {
        const proof = await prove(context, manifest)
        if (typeof proof === 'string') return proof
        const { devices, idleGpus } = proof
        const found = describe({ ...manifest, devices })
        return {
          sentence: idleGpus === undefined ? found : `${found}, ${describeIdle(idleGpus)}`,
          isUsable: idleGpus === undefined,
          isCurrent: idleGpus?.listed !== true && fits(manifest, request),
        }
      }
      return { ...manifest, sentence: describe(manifest), test }
    },
    async build(context, folder) {
      const manifest = await build(context, request, folder)
      const use =
        request.gpu && manifest.devices.includes('CPU')
          ? `no GPU is visible here: ${needsGpu}`
          : 'TSRUN_BACKEND=auto uses it from now on'
      return [manifest, `${describe(manifest)}; ${use}`]
    },
  }
}

/** Explains why GPUs are unused. Ranks cannot load the GPU backend without GPUs. */
function describeIdle({ reason, listed }: IdleGpus): string {
  return listed
    ? `but jobs need the GPUs and TensorFlow finds none (${reason}): ${gpuAdvice}`
    : `and no GPU is visible here (${reason}): ${needsGpu}`
}

/** Whether the installation matches `request`. A request without a source accepts any source. */
function fits(manifest: TensorFlowManifest, request: TensorFlowRequest): boolean {
  const { gpu, official, wheel, python } = manifest.request
  const named = request.official || request.wheel !== null || request.python !== null
  const sameSource =
    official === request.official && wheel === request.wheel && python === request.python
  const isCurrent = hasCurrentBinding(manifest) && manifest.packageVersion === TFJS_VERSION
  return isCurrent && gpu === request.gpu && (!named || sameSource)
}

/** Whether the binding has the kernels of this tsrun, or none by choice. */
export function hasCurrentBinding({ request, bindingRevision }: TensorFlowManifest): boolean {
  return request.official || bindingRevision === BINDING_REVISION
}

export function describe(manifest: TensorFlowManifest): string {
  const { tensorflowVersion, package: name, packageVersion, devices, folder } = manifest
  const kernels = manifest.kernels === false ? ', without the kernels of tsrun' : ''
  return (
    `TensorFlow ${tensorflowVersion} is set up on ${devices.join(', ')} ` +
    `(${name} ${packageVersion}${kernels}, in ${folder})`
  )
}

async function build(
  context: ToolContext,
  request: TensorFlowRequest,
  folder: string,
): Promise<TensorFlowManifest> {
  const { say } = context
  const { gpu } = request
  const name = gpu ? '@tensorflow/tfjs-node-gpu' : '@tensorflow/tfjs-node'
  const { npm, compiler, found } = await findTools(context, request)
  say(`1/5 found the tools: ${found.join(', ')}`)

  say(`2/5 installing ${name} ${TFJS_VERSION} with npm, without its install script`)
  await installPackages(context, npm.command, folder, name)
  const source = folderOfPackage(folder, name)
  const libraryFolders: string[] = []
  let kernels = false
  if (compiler === undefined) {
    say('3/5 running its install script, which downloads TensorFlow')
    const unknown = await installOfficially(context, folder, name)
    libraryFolders.push(join(source, 'deps/lib'))
    say('4/5 the install script has provided the binding')
    for (const { url, sha256 } of unknown) {
      say(`nobody has published the hash of ${url}: its SHA-256 is ${sha256}`)
    }
  } else {
    const given = request.wheel ?? request.python
    const size = gpu ? ', with CUDA: about 3 GB' : ''
    say(`3/5 getting TensorFlow ${given === null ? `as a wheel${size}` : `from ${given}`}`)
    const wheel = await getWheel(context, request, folder)
    libraryFolders.push(...libraryFoldersOf(wheel.folder))
    say(`4/5 compiling the binding with ${compiler.command} against ${wheel.origin}`)
    const headers = join(folder, 'node_modules/node-api-headers/include')
    const problem = await compileBinding(context, compiler, source, headers, wheel)
    kernels = problem === undefined
    if (problem !== undefined) {
      say(
        `the kernels that tsrun adds do not compile (${problem}): small layers use TensorFlow's own ` +
          `operations, which are slower; all output is in ${context.log}`,
      )
    }
  }

  say('5/5 testing the result in a new process')
  const draft = { folder, package: name, libraryFolders } as const
  const proof = await prove(context, draft)
  if (typeof proof === 'string') {
    throw setupError(
      `the result does not work (${proof}): the wheel may be for another system or ` +
        `version; name another one with --wheel or --python, or try --official; see ${context.log}`,
    )
  }
  const { idleGpus } = proof
  if (idleGpus?.listed === true) {
    throw setupError(
      `this host has GPUs, but the result computes on the CPU (${idleGpus.reason}): ${gpuAdvice}; ` +
        `all output is in ${context.log}`,
    )
  }
  return {
    format: 1,
    request,
    ...draft,
    packageVersion: TFJS_VERSION,
    tensorflowVersion: proof.tensorflow,
    ...(compiler === undefined ? {} : { bindingRevision: BINDING_REVISION }),
    kernels,
    devices: proof.devices,
    system: thisSystem,
    createdAt: new Date().toISOString(),
  }
}

/** Finds all required tools before any download. */
async function findTools(context: ToolContext, request: TensorFlowRequest) {
  if (!request.official && process.platform !== 'linux') {
    throw setupError(
      `the binding can be built only on Linux, and this is ${thisSystem}: try --official`,
    )
  }
  const npm = await findNpm(context)
  const python = needsPython(request) ? await findPython(context, request.python) : undefined
  const compiler = request.official ? undefined : await findCompiler(context)
  const found = [
    `Node ${process.versions.node}`,
    `npm ${npm.version}`,
    python === undefined ? [] : `Python ${python.version}`,
    compiler?.version ?? [],
  ]
  return { npm, compiler, found: found.flat() }
}
