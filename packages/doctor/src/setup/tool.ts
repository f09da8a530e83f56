import { spawn } from 'node:child_process'
import { appendFileSync } from 'node:fs'
import { basename } from 'node:path'
import { stripVTControlCharacters } from 'node:util'
import { tsrError } from '@tsrun/core'

export interface ToolContext {
  /** The name of the component, for messages. */
  readonly title: 'TensorFlow' | 'OpenBLAS'
  readonly env: NodeJS.ProcessEnv
  readonly signal: AbortSignal
  /** The log file for the output of all tools. */
  readonly log: string
  readonly say: (sentence: string) => void
  /** Milliseconds between messages about a running tool; default 10 s. */
  readonly reminderInterval?: number
}

export interface ToolOutput {
  readonly ok: boolean
  /** True if the program is not installed. */
  readonly isMissing?: boolean
  readonly stdout: string
  readonly stderr: string
}

interface ToolOptions {
  readonly cwd?: string
  readonly env?: Readonly<Record<string, string>>
  /** Time limit in milliseconds. */
  readonly limit?: number
}

/**
 * Returns NODE_OPTIONS for a process that tests an installation. The result is empty,
 * except under Yarn's Plug'n'Play, which finds packages only with the user's NODE_OPTIONS.
 */
export function testOptions({ env }: Pick<ToolContext, 'env'>): string {
  return process.versions['pnp'] === undefined ? '' : (env['NODE_OPTIONS'] ?? '')
}

/** Half an hour, for downloading 3 GB of CUDA libraries over a slow network. */
const LONGEST = 30 * 60_000

/** Runs a program until it and its children end. Prints progress messages during a long run. */
export async function runTool(
  { env, signal, log, say, reminderInterval = 10_000 }: ToolContext,
  command: string,
  args: readonly string[],
  { cwd, env: more, limit = LONGEST }: ToolOptions = {},
): Promise<ToolOutput> {
  signal.throwIfAborted()
  const child = spawn(command, args, {
    cwd,
    env: { ...env, ...more },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  })
  const output = { stdout: '', stderr: '' }
  /** The last characters of stdout and stderr, in the order of arrival. */
  let printed = ''
  appendFileSync(log, `$ ${command} ${args.join(' ')}\n`)
  for (const name of ['stdout', 'stderr'] as const) {
    child[name].setEncoding('utf8').on('data', (text: string) => {
      output[name] += text
      printed = (printed + text).slice(-4000)
      appendFileSync(log, text)
    })
  }
  const kill = (): void => {
    if (child.pid === undefined || child.exitCode !== null) return
    // Windows has no process groups.
    if (process.platform === 'win32') child.kill('SIGKILL')
    else process.kill(-child.pid, 'SIGKILL')
  }
  const timer = setTimeout(() => {
    output.stderr += `\nstopped after ${limit / 1000} s`
    kill()
  }, limit)
  const start = performance.now()
  const reminder = setInterval(() => {
    const seconds = Math.round((performance.now() - start) / 1000)
    say(`… ${seconds} s: ${lastLineOf(printed) ?? `${basename(command)} is working`}`)
  }, reminderInterval)
  signal.addEventListener('abort', kill)
  try {
    return await new Promise<ToolOutput>((resolve, reject) => {
      child.once('error', (error: NodeJS.ErrnoException) => {
        const isMissing = error.code === 'ENOENT' || error.code === 'EACCES'
        if (isMissing) resolve({ ok: false, isMissing, ...output })
        else reject(error)
      })
      child.once('close', (code, killer) => {
        if (killer !== null && killer !== 'SIGKILL') output.stderr += `\nended by ${killer}`
        resolve({ ok: code === 0, ...output })
      })
    })
  } finally {
    clearTimeout(timer)
    clearInterval(reminder)
    signal.removeEventListener('abort', kill)
    signal.throwIfAborted()
  }
}

/** Returns the last line without colours, at most 100 characters. Skips pip's progress bars. */
function lastLineOf(text: string): string | undefined {
  const lines = stripVTControlCharacters(text).split(/[\r\n]/)
  return lines
    .findLast((line) => /\w/.test(line) && !/[━█]/.test(line))
    ?.trim()
    .slice(0, 100)
}

export function setupError(problem: string, what = 'TensorFlow'): Error {
  return tsrError('ERR_TSR_SETUP', { what, problem })
}

/** Matches lines of npm that do not contain the reason for a failure. */
const npmNoise = /complete log|npm (error|ERR!)( (code|syscall|errno|path|dest) .*)?$/

/** The most informative line of a failed tool's output: an error of npm or pip, else the last line. */
export function reasonOf(output: ToolOutput): string {
  if (output.isMissing) return 'it does not start'
  const lines = textOf(output)
    .split('\n')
    .map((line) => line.trim())
  const errors = lines.filter((line) =>
    /^(npm (error|ERR!)|ERROR:|\w*Error\b.*:|.*\berror:)/.test(line),
  )
  const said = errors.filter((line) => !npmNoise.test(line))
  const line = said[0] ?? errors[0] ?? lines.findLast((text) => text !== '')
  return line === undefined ? 'it printed nothing' : line.slice(0, 200)
}

const offline =
  /\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|EHOSTUNREACH|ENETUNREACH|E\w*TIMEDOUT|ERR_SOCKET_TIMEOUT)\b|Retrying \(Retry\(|(Connection|Timeout|Proxy)Error/

/**
 * Chooses advice by the output of npm or pip.
 *
 * @param noWheel - the advice if no wheel fits this system
 */
export function installAdvice(output: ToolOutput, source: string, noWheel = ''): string {
  const text = textOf(output)
  if (/No space left on device|\bENOSPC\b/i.test(text)) {
    return 'free some space in TSRUN_HOME and TMPDIR (TensorFlow takes 2 GB, with CUDA 7 GB), or set them to other folders'
  }
  if (/\bEINTEGRITY\b|DO NOT MATCH THE HASHES/.test(text)) {
    return `${source} gives other files than those that tsrun was tested with`
  }
  if (/wheel .* is invalid|not a zip file|BadZipFile/i.test(text)) {
    return 'the wheel is damaged: download it again'
  }
  if (/\(from versions: (?!none\))|not a supported wheel/.test(text)) return noWheel
  // Without a network, pip also says that there is no matching distribution.
  if (offline.test(text)) return `this host cannot reach ${source}`
  return /no matching distribution/i.test(text)
    ? noWheel
    : `check ${source}, and run the command again`
}

interface PipRequest {
  readonly what: string
  readonly args: readonly string[]
  readonly noWheel: string
}

/** Installs wheels without their dependencies. @throws ERR_TSR_SETUP */
export async function installWithPip(
  context: ToolContext,
  python: string,
  { what, args, noWheel }: PipRequest,
): Promise<void> {
  const flags = ['--no-input', '--disable-pip-version-check', '--only-binary', ':all:']
  const install = ['-m', 'pip', 'install', ...flags, '--no-compile', '--no-deps', ...args]
  const output = await runTool(context, python, install)
  if (output.ok) return
  const { log, title } = context
  const advice = installAdvice(
    output,
    'the index of your pip configuration (pip config list)',
    noWheel,
  )
  throw setupError(
    `pip could not install ${what} (${reasonOf(output)}): ${advice}; all output is in ${log}`,
    title,
  )
}

function textOf({ stdout, stderr }: ToolOutput): string {
  return `${stdout}\n${stderr}`
}

export interface Tool {
  readonly command: string
  readonly version: string
}

/** Options for commands that only print the version of a tool. */
const PROBE = { limit: 60_000 }

export async function findNpm(context: ToolContext): Promise<Tool> {
  const found = await runTool(context, 'npm', ['--version'], PROBE)
  if (found.ok) return { command: 'npm', version: found.stdout.trim() }
  throw setupError('there is no working npm on the PATH: install the one that comes with Node')
}

const compilers = ['g++', 'c++', 'clang++'] as const
/** Compiles an empty file that includes <string>. */
const probe = ['-std=c++17', '-fsyntax-only', '-x', 'c++', '-include', 'string', '/dev/null']

/** Finds a compiler with a standard library. @throws ERR_TSR_SETUP */
export async function findCompiler(context: ToolContext): Promise<Tool> {
  const named = context.env['CXX'] ?? ''
  const candidates = named === '' ? compilers : [named]
  let problem =
    named === ''
      ? `there is no C++ compiler (${candidates.join(', ')}) on the PATH`
      : `there is no C++ compiler ${named}, which CXX names`
  for (const command of candidates) {
    const version = await runTool(context, command, ['--version'], PROBE)
    if (version.isMissing) continue
    const tried = await runTool(context, command, probe, PROBE)
    if (tried.ok) return { command, version: version.stdout.split('\n', 1)[0]! }
    problem = `the C++ compiler ${command} cannot compile C++17 with <string>`
  }
  throw setupError(
    `${problem}: install one (Debian and Ubuntu: apt-get install g++; Fedora: dnf install gcc-c++), ` +
      'or name it in CXX',
  )
}

const pythons = ['python3', 'python'] as const

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

/** Finds a Python with these modules. @param named - the flag --python, if given */
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
