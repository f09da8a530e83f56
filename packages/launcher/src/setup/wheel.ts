import { existsSync, readdirSync, statSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { thisSystem, type TensorFlowRequest } from '@tsrun/core'
import { PINNED_MACHINES, PINNED_PYTHONS, requirements, TENSORFLOW_VERSION } from './pins.ts'
import {
  installWithPip,
  reasonOf,
  roomAdvice,
  runTool,
  setupError,
  sizeOf,
  type ToolContext,
} from './tool.ts'
import { findPython, type Tool } from './toolchain.ts'

/** A TensorFlow that was installed from a wheel. */
export interface Wheel {
  /** The folder that contains the libraries and `include`. */
  readonly folder: string
  /** Its source, for messages. */
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
  return [path, join(path, 'tensorflow')].find((folder) =>
    libraries.some((library) => existsSync(join(folder, library))),
  )
}

function archivesIn(path: string): string {
  const folder = statSync(path).isDirectory() ? path : dirname(path)
  if (readdirSync(folder).some((name) => /^tensorflow.*\.whl$/.test(name))) return folder
  throw setupError(
    `${path} (--wheel) holds neither a TensorFlow wheel (tensorflow*.whl) nor an installed one ` +
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
    advice: {
      full: roomAdvice(sizeOf(gpu), folder),
      offline: ', or name a folder with the wheel with --wheel',
      'no wheel':
        `there is no wheel for Python ${python.version} on ${thisSystem}; those of TensorFlow ` +
        `${TENSORFLOW_VERSION} are for CPython ${PINNED_PYTHONS[0]} to ${PINNED_PYTHONS.at(-1)!} on Linux with ` +
        `glibc, ${PINNED_MACHINES.join(' and ')}: name such a Python with --python, or a folder with another ` +
        'wheel, from 2.16 on, with --wheel; or check the index of your pip configuration with pip config list',
      'other file': '; if you trust them, put them into a folder and name it with --wheel',
      damaged: 'name another folder with --wheel, or leave out --wheel to download the wheel',
    },
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
