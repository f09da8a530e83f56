import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { basename, delimiter, dirname, join } from 'node:path'
import {
  list,
  object,
  type Of,
  parseJson,
  type TensorFlowManifest,
  type TensorFlowRequest,
  text,
  thisSystem,
} from '@tsrun/core'
import { packageFolder } from '../package-folder.ts'
import {
  npmLock,
  npmManifest,
  OFFICIAL_ARCHIVES,
  PINNED_MACHINES,
  PINNED_PYTHONS,
  requirements,
  TENSORFLOW_VERSION,
  TFJS_VERSION,
} from './pins.ts'
import {
  findPython,
  installWithPip,
  installAdvice,
  reasonOf,
  runTool,
  setupError,
  type Tool,
  type ToolContext,
} from './tool.ts'

/** A file that an install script downloaded. */
type Download = Of<typeof download>
const download = object({ url: text, sha256: text })

/** The module that records downloads, as a URL because NODE_OPTIONS cannot hold paths with spaces. */
const recorder = new URL('src/setup/record-downloads.mjs', packageFolder).href

export function folderOfPackage(folder: string, name: TensorFlowManifest['package']): string {
  return join(folder, 'node_modules', name)
}

/** Installs the package of the binding and Node's headers, without their install scripts. */
export async function installPackages(
  context: ToolContext,
  npm: string,
  folder: string,
  name: TensorFlowManifest['package'],
): Promise<void> {
  writeFileSync(join(folder, 'package.json'), JSON.stringify(npmManifest(name), null, 2))
  writeFileSync(join(folder, 'package-lock.json'), npmLock(name))
  const flags = ['--ignore-scripts', '--no-audit', '--no-fund', '--omit=dev']
  const output = await runTool(context, npm, ['ci', '--prefix', folder, ...flags], { cwd: folder })
  if (output.ok) return
  const advice = installAdvice(
    output,
    'the registry of your npm configuration (npm config get registry)',
  )
  throw setupError(
    `npm could not install ${name} ${TFJS_VERSION} (${reasonOf(output)}): ` +
      `${advice}; all output is in ${context.log}`,
  )
}

/**
 * Runs the package's install script, which downloads a library and a binding. Checks the hashes before
 * any downloaded code runs.
 *
 * @returns the downloads without a known hash
 */
export async function installOfficially(
  context: ToolContext,
  folder: string,
  name: TensorFlowManifest['package'],
): Promise<readonly Download[]> {
  const args = name === '@tensorflow/tfjs-node-gpu' ? ['gpu', 'download'] : []
  const path = [join(folder, 'node_modules/.bin'), context.env['PATH'] ?? ''].join(delimiter)
  const record = join(folder, 'downloads')
  const output = await runTool(context, process.execPath, ['scripts/install.js', ...args], {
    cwd: folderOfPackage(folder, name),
    env: {
      PATH: path,
      TSRUN_DOWNLOADS: record,
      NODE_OPTIONS: `${context.env['NODE_OPTIONS'] ?? ''} --import=${recorder}`,
    },
  })
  if (!output.ok) {
    throw setupError(
      `the install script of ${name} failed (${reasonOf(output)}): it needs the network, and a system for which ` +
        `there is a download (this is ${thisSystem}); without --official, the binding is built ` +
        `with a wheel from pip; all output is in ${context.log}`,
    )
  }
  const lines = existsSync(record) ? readFileSync(record, 'utf8').trimEnd().split('\n') : []
  const downloads = parseJson(`[${lines.join(',')}]`, list(download)) ?? []
  return compareDownloads(downloads)
}

/**
 * Rejects a download whose hash differs from the known hash.
 *
 * @returns the downloads without a known hash
 */
export function compareDownloads(downloads: readonly Download[]): Download[] {
  if (downloads.length === 0) {
    throw setupError('the install script has downloaded nothing whose hash could be compared')
  }
  return downloads.filter(({ url, sha256 }) => {
    const known = OFFICIAL_ARCHIVES[basename(new URL(url).pathname)]
    if (known === undefined) return true
    if (known === sha256) return false
    throw setupError(
      `${url} has the SHA-256 ${sha256}, and not ${known}: it was changed on its ` +
        'way or at its source; find out who before you use it',
    )
  })
}

export interface Wheel {
  /** The folder that contains the libraries and `include`. */
  readonly folder: string
  /** The source of the wheel, for messages. */
  readonly origin: string
}

const libraries = ['libtensorflow_cc.so.2', 'libtensorflow_framework.so.2'] as const
const header = 'include/tensorflow/c/eager/c_api.h'

/** Uses the TensorFlow that the user names, or installs one with pip. @throws ERR_TSR_SETUP */
export async function getWheel(
  context: ToolContext,
  { wheel, python, gpu }: TensorFlowRequest,
  folder: string,
): Promise<Wheel> {
  const unpacked = wheel === null ? undefined : unpackedIn(wheel)
  if (unpacked !== undefined) return check({ folder: unpacked, origin: `that of ${unpacked}` })
  const archives = wheel === null ? undefined : archivesIn(wheel)
  const interpreter = await findPython(context, python)
  const installed = python === null ? undefined : await tensorflowOf(context, python)
  if (installed !== undefined) return check({ folder: installed, origin: `that of ${python!}` })
  return check(await installWheel(context, interpreter, { archives, gpu }, folder))
}

/** Whether pip, and therefore Python, is needed. @throws ERR_TSR_SETUP if --wheel contains no wheel */
export function needsPython({ wheel, official }: TensorFlowRequest): boolean {
  if (official || (wheel !== null && unpackedIn(wheel) !== undefined)) return false
  if (wheel !== null) archivesIn(wheel)
  return true
}

/** Folders of the libraries that TensorFlow loads at run time: its own, then CUDA's. */
export function libraryFoldersOf(tensorflow: string): string[] {
  const nvidia = join(dirname(tensorflow), 'nvidia')
  const parts = existsSync(nvidia) ? readdirSync(nvidia).sort() : []
  return [tensorflow, ...parts.map((part) => join(nvidia, part, 'lib')).filter(existsSync)]
}

function unpackedIn(path: string): string | undefined {
  return [path, join(path, 'tensorflow')].find((folder) => existsSync(join(folder, libraries[0])))
}

function archivesIn(path: string): string {
  const folder = statSync(path).isDirectory() ? path : dirname(path)
  if (readdirSync(folder).some((name) => /^tensorflow.*\.whl$/.test(name))) return folder
  throw setupError(
    `${path} (--wheel) holds neither a TensorFlow wheel (tensorflow*.whl) nor an unpacked one ` +
      `(${libraries[0]}): make such a folder with pip download tensorflow-cpu --no-deps -d DIR`,
  )
}

async function tensorflowOf(context: ToolContext, python: string): Promise<string | undefined> {
  const script =
    'import importlib.util as u; s = u.find_spec("tensorflow"); print(s.submodule_search_locations[0] if s else "")'
  const found = await runTool(context, python, ['-c', script])
  return (found.ok && found.stdout.trim()) || undefined
}

async function installWheel(
  context: ToolContext,
  python: Tool,
  { archives, gpu }: { readonly archives: string | undefined; readonly gpu: boolean },
  folder: string,
): Promise<Wheel> {
  const venv = join(folder, 'venv')
  const made = await runTool(context, python.command, ['-m', 'venv', venv])
  if (!made.ok) {
    throw setupError(
      `${python.command} could not make a virtual environment (${reasonOf(made)}): install its module venv ` +
        '(Debian and Ubuntu: apt-get install python3-venv), or name another one with --python',
    )
  }
  const interpreter = join(venv, 'bin/python')
  const what = archives ?? `TensorFlow ${TENSORFLOW_VERSION}${gpu ? ' with CUDA' : ''}`
  const source =
    archives === undefined
      ? ['--require-hashes', '-r', requirements(`tensorflow-${gpu ? 'gpu' : 'cpu'}`)]
      : ['--no-index', ...wheelsOf(archives)]
  // Skip the dependencies, which only TensorFlow's unused Python code needs.
  await installWithPip(context, interpreter, {
    what,
    args: source,
    noWheel:
      `there is no wheel for Python ${python.version} on ${thisSystem}; those of TensorFlow ` +
      `${TENSORFLOW_VERSION} are for CPython ${PINNED_PYTHONS[0]} to ${PINNED_PYTHONS.at(-1)!} on Linux with ` +
      `glibc, ${PINNED_MACHINES.join(' and ')}: name such a Python with --python, or a folder with another ` +
      'wheel, from 2.16 on, with --wheel; or check the index of your pip configuration with pip config list',
  })
  const tensorflow = await tensorflowOf(context, interpreter)
  if (tensorflow !== undefined) return { folder: tensorflow, origin: `${what} from pip` }
  throw setupError(
    `pip has installed ${what}, but there is no module tensorflow: it is a different wheel`,
  )
}

function wheelsOf(folder: string): string[] {
  const names = readdirSync(folder).filter((name) => /^(tensorflow|nvidia)[^/]*\.whl$/.test(name))
  return names.map((name) => join(folder, name))
}

function check(wheel: Wheel): Wheel {
  const missing = [...libraries, header].find((name) => !existsSync(join(wheel.folder, name)))
  if (missing === undefined) return wheel
  throw setupError(
    `the TensorFlow in ${wheel.folder} has no ${missing}: use the wheel of TensorFlow 2.16 or later ` +
      `for ${thisSystem}, with its headers`,
  )
}
