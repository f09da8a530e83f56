import { spawn } from 'node:child_process'
import { appendFileSync } from 'node:fs'
import { basename } from 'node:path'
import { stripVTControlCharacters } from 'node:util'
import { tsrError } from '@tsrun/core'
import { isOldNode, OLDEST_NODE } from '@tsrun/launcher/host'

/** The environment of a set-up. */
export interface ToolContext {
  /** What is set up, for messages. */
  readonly title: 'TensorFlow' | 'OpenBLAS'
  readonly env: NodeJS.ProcessEnv
  /** Aborts when the user interrupts. */
  readonly signal: AbortSignal
  /** The log file for the output of all tools. */
  readonly log: string
  readonly say: (sentence: string) => void
  /** Milliseconds between messages about a running tool; default 10 s. */
  readonly reminderInterval?: number
  /** With --official: accepted hashes of downloads without a known hash; an empty list accepts any. */
  readonly sha256?: readonly string[]
}

export interface ToolOutput {
  readonly ok: boolean
  /** True if there is no such program. */
  readonly isMissing?: boolean
  readonly stdout: string
  readonly stderr: string
}

interface ToolOptions {
  readonly cwd?: string
  readonly env?: Readonly<Record<string, string>>
  /** Milliseconds. */
  readonly limit?: number
  /** What the tool is working on, for messages while it prints nothing. */
  readonly work?: string
}

/**
 * NODE_OPTIONS of a process that tests an installation: none, but under Yarn's Plug'n'Play those of the user,
 * by which packages are found.
 */
export function testOptions({ env }: Pick<ToolContext, 'env'>): string {
  return process.versions['pnp'] === undefined ? '' : (env['NODE_OPTIONS'] ?? '')
}

/** Half an hour, for downloading 3 GB of CUDA libraries over a slow network. */
const LONGEST = 30 * 60_000

/**
 * Runs a program until it and its children end. Prints progress messages during a long run.
 *
 * @throws the abort reason of the context's signal
 */
export async function runTool(
  { env, signal, log, say, reminderInterval = 10_000 }: ToolContext,
  command: string,
  args: readonly string[],
  { cwd, env: more, limit = LONGEST, work }: ToolOptions = {},
): Promise<ToolOutput> {
  signal.throwIfAborted()
  const child = spawn(command, args, {
    cwd,
    env: { ...env, ...more },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  })
  const output = { stdout: '', stderr: '' }
  /** The end of the output so far, of both streams together. */
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
  const atWork = `${basename(command)} is working${work === undefined ? '' : ` on ${work}`}`
  const reminder = setInterval(() => {
    const seconds = Math.round((performance.now() - start) / 1000)
    say(`… ${seconds} s: ${lastLineOf(printed) ?? atWork}`)
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

/** The last line without colours, at most 100 characters. Skips pip's progress bars. */
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

/** Why npm or pip failed; determines the advice. */
interface Failure {
  readonly kind: 'offline' | 'full' | 'no wheel' | 'damaged' | 'other file' | 'other'
  /** A line of the tool's output. */
  readonly reason: string
}

/** Matches lines of npm that do not tell the reason. */
const npmNoise = /complete log|npm (error|ERR!)( (code|syscall|errno|path|dest) .*)?$/
const npmOffline =
  /\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|EHOSTUNREACH|ENETUNREACH|E\w*TIMEDOUT|ERR_SOCKET_TIMEOUT)\b/

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

export function npmFailure(output: ToolOutput): Failure {
  const text = textOf(output)
  const kind = isFull(text)
    ? 'full'
    : /\bEINTEGRITY\b/.test(text)
      ? 'other file'
      : npmOffline.test(text)
        ? 'offline'
        : 'other'
  return { kind, reason: reasonOf(output) }
}

interface PipRequest {
  /** What is installed, for messages. */
  readonly what: string
  /** Flags and requirements. */
  readonly args: readonly string[]
  /** Advice for kinds of failures. It follows the general advice for that kind, if there is some. */
  readonly advice: Readonly<Partial<Record<Failure['kind'], string>>>
}

const pipAdvice: PipRequest['advice'] = {
  offline: 'this host cannot reach the index of your pip configuration: see pip config list',
  'other file':
    'the index of your pip configuration gives other files than those that tsrun was tested with',
  other: 'check the index of your pip configuration, and run the command again',
}

/** Installs wheels without their dependencies. @throws ERR_TSR_SETUP */
export async function installWithPip(
  context: ToolContext,
  python: string,
  { what, args, advice }: PipRequest,
): Promise<void> {
  const flags = ['--no-input', '--disable-pip-version-check', '--only-binary', ':all:']
  const output = await runTool(context, python, [
    '-m',
    'pip',
    'install',
    ...flags,
    '--no-compile',
    '--no-deps',
    ...args,
  ])
  if (output.ok) return
  const { log, title } = context
  const { kind, reason } = pipFailure(output)
  const todo = [pipAdvice[kind], advice[kind]].join('') || pipAdvice.other!
  throw setupError(
    `pip could not install ${what} (${reason}): ${todo}; all output is in ${log}`,
    title,
  )
}

/**
 * Classifies a failure of pip by its earlier lines. The last two lines are the same for an unreadable
 * index and for a version that does not exist.
 */
export function pipFailure(output: ToolOutput): Failure {
  const text = textOf(output)
  const reason = reasonOf(output)
  if (isFull(text)) return { kind: 'full', reason }
  const sawVersions = /\(from versions: (?!none\))/.test(text)
  if (!sawVersions && /Retrying \(Retry\(|(Connection|Timeout|Proxy)Error/.test(text)) {
    return { kind: 'offline', reason: /\[Errno -?\d+\] [^'")]+/.exec(text)?.[0] ?? reason }
  }
  if (text.includes('DO NOT MATCH THE HASHES'))
    return { kind: 'other file', reason: hashesIn(text) }
  if (/wheel .* is invalid|not a zip file|BadZipFile/i.test(text))
    return { kind: 'damaged', reason }
  const unfit = /no matching distribution|not a supported wheel/i.test(text)
  return { kind: unfit ? 'no wheel' : 'other', reason }
}

function hashesIn(text: string): string {
  const got = /\bGot\s+([0-9a-f]{64})/.exec(text)?.[1] ?? 'unknown'
  const from = /^\s+(\S+).* from (\S+)/m.exec(text)
  return `${from === null ? 'a file' : from[2]!} has the SHA-256 ${got}, which is none of those that are pinned`
}

/** The size of an installation of TensorFlow, as measured with version 2.21. */
export function sizeOf(gpu: boolean): string {
  return `${gpu ? 7 : 2} GB`
}

/** Advice for a full disk. */
export function roomAdvice(size: string, folder: string): string {
  return (
    `an installation needs about ${size} in ${folder}, and for a while as much in TMPDIR (/tmp): ` +
    'free some space, or name other folders in TSRUN_HOME and TMPDIR'
  )
}

function isFull(text: string): boolean {
  return /No space left on device|\bENOSPC\b/i.test(text)
}

function textOf({ stdout, stderr }: ToolOutput): string {
  return `${stdout}\n${stderr}`
}

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
