import { mkdtempSync, rmSync, writeFileSync, readdirSync } from 'node:fs'
import { hostname } from 'node:os'
import { dirname, join } from 'node:path'
import {
  distrustOf,
  makeFolders,
  tensorflowHome,
  thisSystem,
  writeTensorFlowManifest,
  type TensorFlowManifest,
  type TensorFlowRequest,
  tsrunHome,
} from '@tsrun/core'
import { isAlive } from '../job/process/process-use.ts'
import { BINDING_REVISION, compileBinding } from './binding.ts'
import { folderOfPackage, installOfficially, installPackages } from './npm-packages.ts'
import { TFJS_VERSION } from './pins.ts'
import { gpuAdvice, prove } from './proof.ts'
import { setupError, type ToolContext } from './tool.ts'
import { checkNode, findCompiler, findNpm, findPython } from './toolchain.ts'
import { getWheel, libraryFoldersOf, needsPython } from './wheel.ts'

/**
 * Installs TensorFlow in a new folder, and points the manifest to it at the end. Until then, the
 * previous installation stays usable.
 *
 * @throws ERR_TSR_SETUP, or the abort reason of the context's signal
 */
export async function install(
  context: ToolContext,
  request: TensorFlowRequest,
  previous: TensorFlowManifest | undefined,
): Promise<TensorFlowManifest> {
  const home = makeHome(context)
  removeAbandoned(home, previous?.folder)
  const folder = mkdtempSync(join(home, `${ownPrefix()}${process.pid}-`))
  try {
    const manifest = await build(context, request, folder)
    writeTensorFlowManifest(manifest, context.env)
    if (previous !== undefined && dirname(previous.folder) === home) remove(previous.folder)
    return manifest
  } catch (error) {
    remove(folder)
    throw error
  }
}

async function build(
  context: ToolContext,
  request: TensorFlowRequest,
  folder: string,
): Promise<TensorFlowManifest> {
  const { say } = context
  const { gpu } = request
  const name = gpu ? '@tensorflow/tfjs-node-gpu' : '@tensorflow/tfjs-node'
  const { npm, compiler, tools } = await findTools(context, request)
  say(`1/5 found the tools: ${Object.entries(tools).map(describe).join(', ')}`)

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
      say(`nobody has published the hash of ${url}: its SHA-256 is ${sha256}; --sha256 demands it`)
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
  if (!proof.works) {
    throw setupError(
      `the result does not work (${proof.problem}): the wheel may be for another system or ` +
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
    tools,
    system: thisSystem,
    createdAt: new Date().toISOString(),
  }
}

/** Finds all required tools before any download. */
async function findTools(context: ToolContext, request: TensorFlowRequest) {
  checkNode(process.versions)
  if (!request.official && process.platform !== 'linux') {
    throw setupError(
      `the binding can be built only on Linux, and this is ${thisSystem}: try --official`,
    )
  }
  const npm = await findNpm(context)
  const python = needsPython(request) ? await findPython(context, request.python) : undefined
  const compiler = request.official ? undefined : await findCompiler(context)
  const tools: Record<string, string> = { Node: process.versions.node, npm: npm.version }
  if (python !== undefined) tools['Python'] = python.version
  if (compiler !== undefined) tools['compiler'] = compiler.version
  return { npm, compiler, tools }
}

function describe([name, version]: [string, string]): string {
  return name === 'compiler' ? version : `${name} ${version}`
}

function makeHome({ env, log }: ToolContext): string {
  const home = tensorflowHome(env)
  const distrust = distrustOf(tsrunHome(env)) ?? distrustOf(home)
  if (distrust !== undefined) {
    throw setupError(`${home} is not safe: ${distrust}; name another folder in TSRUN_HOME`)
  }
  try {
    makeFolders(home)
    rmSync(log, { force: true })
    writeFileSync(log, '', { flag: 'wx' })
    return home
  } catch (error) {
    throw setupError(
      `${home} cannot be written (${(error as Error).message}): name another folder in TSRUN_HOME`,
    )
  }
}

/** Removes build folders of killed set-ups on this host. */
export function removeAbandoned(home: string, inUse: string | undefined): void {
  for (const name of readdirSync(home)) {
    const folder = join(home, name)
    const pid = Number(name.startsWith(ownPrefix()) ? name.split('-').at(-2) : NaN)
    if (!Number.isNaN(pid) && folder !== inUse && !isAlive(pid)) remove(folder)
  }
}

function remove(folder: string): void {
  rmSync(folder, { recursive: true, force: true, maxRetries: 3 })
}

/** Prefix of the build folders of this host. A process ID follows in the name of a folder. */
function ownPrefix(): string {
  return `build-${hostname()}-`
}
