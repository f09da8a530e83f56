import { isOldNode, OLDEST_NODE } from '../package.ts'
import { runTool, setupError, type ToolContext } from './tool.ts'

/** A program that works. */
export interface Tool {
  readonly command: string
  readonly version: string
}

const NODE_API = 8
/** For tools that only say which they are. */
const PROBE = { limit: 60_000 }

/** @throws ERR_TSR_SETUP */
export function checkNode(versions: { readonly node: string; readonly napi?: string }): void {
  if (!isOldNode(versions.node) && Number(versions.napi) >= NODE_API) return
  throw setupError(
    `this is Node ${versions.node}, and the binding needs Node ${OLDEST_NODE} or later: ` +
      'install a newer Node and run the command with it',
  )
}

/** @throws ERR_TSR_SETUP */
export async function findNpm(context: ToolContext): Promise<Tool> {
  const found = await runTool(context, 'npm', ['--version'], PROBE)
  if (found.ok) return { command: 'npm', version: found.stdout.trim() }
  throw setupError('there is no working npm on the PATH: install the one that comes with Node')
}

const compilers = ['g++', 'c++', 'clang++'] as const
const probe = '#include <string>\nstd::string text;\n'

/** Finds a compiler with a standard library. @throws ERR_TSR_SETUP */
export async function findCompiler(context: ToolContext): Promise<Tool> {
  const named = context.env['CXX'] ?? ''
  const candidates = named === '' ? compilers : [named]
  let problem =
    named === ''
      ? `there is no C++ compiler (${candidates.join(', ')}) on the PATH`
      : `there is no C++ compiler ${named}, which CXX names`
  for (const command of candidates) {
    const script = `printf '%s' "$0" | "$@" -std=c++17 -fsyntax-only -x c++ -`
    const version = await runTool(context, command, ['--version'], PROBE)
    if (version.isMissing) continue
    const tried = await runTool(context, 'sh', ['-c', script, probe, command], PROBE)
    if (tried.ok) return { command, version: version.stdout.split('\n', 1)[0]! }
    problem = `the C++ compiler ${command} cannot compile C++17 with <string>`
  }
  throw setupError(
    `${problem}: install one (Debian and Ubuntu: apt-get install g++; Fedora: dnf install gcc-c++), ` +
      'or name it in CXX',
  )
}

const pythons = ['python3', 'python'] as const

/** What a set-up needs of Python. */
interface PythonNeeds {
  readonly modules: readonly [string, ...string[]]
  readonly advice: string
}

const virtualEnvironments: PythonNeeds = {
  modules: ['venv', 'ensurepip'],
  advice:
    'install Python 3.10 or later with venv (Debian and Ubuntu: apt-get install ' +
    'python3-venv), name one with --python PATH, or use --official, which needs none',
}

/**
 * Finds a Python that can make virtual environments, or has other modules.
 *
 * @param named - the flag --python, if given
 * @throws ERR_TSR_SETUP
 */
export async function findPython(
  context: ToolContext,
  named: string | null,
  { modules, advice } = virtualEnvironments,
): Promise<Tool> {
  let problem =
    named === null
      ? `there is no Python (${pythons.join(', ')}) on the PATH`
      : `${named} (--python) is not a Python that runs`
  for (const command of named === null ? pythons : [named]) {
    const script = `import sys; print(sys.version.split()[0]); import ${modules.join(', ')}`
    const { ok, stdout } = await runTool(context, command, ['-c', script], PROBE)
    const version = stdout.trim()
    if (ok) return { command, version }
    if (version !== '') {
      problem = `Python ${version} (${command}) has no module ${modules[0]}`
      break
    }
  }
  throw setupError(`${problem}: ${advice}`, context.title)
}
