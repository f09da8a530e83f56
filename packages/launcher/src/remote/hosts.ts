import { spawn } from 'node:child_process'
import { dirname, resolve } from 'node:path'
import type { Readable } from 'node:stream'
import { isTsrError, nearestName, readFileText } from '@tsrun/core'
import { HIGHEST_PORT, integerFrom, quoted, readSetting, usageError } from '../args/readers.ts'
import type { Interrupts } from '../job/process/interrupts.ts'
import { lineSplitter } from '../logs/lines.ts'
import { version } from '../package.ts'

/** The flags of commands that use ssh. @param needs - the name of the flag that these flags require */
export function hostFlags(needs?: string) {
  return {
    include: { needs, description: 'only these hosts, separated by commas' },
    exclude: { needs, description: 'all hosts but these' },
    ssh: { needs, fallback: 'ssh', description: 'the command of ssh, with options' },
    port: {
      needs,
      reads: integerFrom(1, HIGHEST_PORT, 'a port'),
      fallback: '29500',
      description: 'the port of the store',
    },
  } as const
}

/** A host that `tsrun hosts` reaches with ssh. */
export interface RemoteHost {
  /** The host name that ssh and the other hosts use. */
  readonly name: string
  readonly slots: number
  readonly user: string | undefined
  readonly port: number | undefined
}

const MOST_BYTES = 2 ** 20

/** Reads the hosts of a file. @throws ERR_TSR_USAGE */
export function readHosts(file: string, cwd: string): RemoteHost[] {
  try {
    return parseHostfile(readFileText(resolve(cwd, file), MOST_BYTES), file)
  } catch (error) {
    if (isTsrError(error)) throw error
    throw usageError(`the host file ${file} cannot be read: ${(error as Error).message}`, error)
  }
}

/**
 * Parses a host file as in Open MPI, MPICH and DeepSpeed: one host on each line, written as `host`,
 * `host:2` (slots), `[::1]:2` or `me@host`, followed by `slots=4`, `user=me` and `port=2222`; `#` starts a
 * comment.
 */
export function parseHostfile(text: string, file: string): RemoteHost[] {
  const hosts: RemoteHost[] = []
  for (const [index, line] of text.split(/\r?\n/).entries()) {
    const parts = line.replace(/#.*/, '').split('=')
    const words = parts
      .map((part) => part.trim())
      .join('=')
      .split(/\s+/)
    const [word = '', ...settings] = words
    if (word === '') continue
    const { user, name, slots } = parseHost(word)
    if (slots !== undefined) settings.unshift(`slots=${slots}`)
    if (user !== undefined) settings.unshift(`user=${user}`)
    const where = `${file}, line ${index + 1}`
    // ssh would take a name with a leading dash as an option.
    if (!/^[\w:][\w.:%-]*$/.test(name)) {
      throw usageError(`${where}: ${name || word} is no name of a host`)
    }
    if (hosts.some((host) => host.name === name))
      throw usageError(`${where}: ${name} is there twice`)
    hosts.push({ name, ...hostSettings(settings, where) })
  }
  if (hosts.length === 0) throw usageError(`${file} has no host`)
  return hosts
}

/** Splits `me@[::1]:2` into its parts. */
function parseHost(word: string) {
  const [, user, place = ''] = /^(?:([^@]*)@)?(.*)$/.exec(word)!
  // An IPv6 address has several colons.
  const [, address, short, slots] = /^(?:\[(.*)\]|([^:]+))(?::(\d+))?$/.exec(place) ?? []
  return { user, name: address ?? short ?? place, slots }
}

/** The settings of a host. `max_slots` of Open MPI has no effect. */
const known = ['slots', 'max_slots', 'max-slots', 'user', 'port']

function hostSettings(settings: readonly string[], where: string): Omit<RemoteHost, 'name'> {
  const values = new Map<string, string>()
  for (const setting of settings) {
    const [, key, value] = /^([\w-]+)=(.+)$/.exec(setting) ?? []
    if (key === undefined || value === undefined || !known.includes(key)) {
      throw usageError(`${where}: ${setting}; expected slots=N, user=NAME or port=N`)
    }
    values.set(key, value)
  }
  const integer = (key: string, most: number): number | undefined => {
    const value = values.get(key)
    if (value === undefined) return undefined
    return readSetting({ value, source: `${where}: ${key}` }, integerFrom(1, most))
  }
  const user = values.get('user')
  if (user !== undefined && !/^\w[\w.-]*$/.test(user)) {
    throw usageError(`${where}: user=${user} is no name of a user`)
  }
  return { slots: integer('slots', 4096) ?? 1, user, port: integer('port', HIGHEST_PORT) }
}

/** Selects the hosts of `--include`, or all hosts not in `--exclude`, in the order of the file. */
export function chooseHosts(
  hosts: readonly RemoteHost[],
  {
    include,
    exclude,
  }: { readonly include?: string | undefined; readonly exclude?: string | undefined },
): RemoteHost[] {
  const known = hosts.map(({ name }) => name)
  const read = (flag: string, list: string | undefined): string[] | undefined => {
    const names = list?.split(',').map((name) => name.trim())
    const unknown = names?.find((name) => !known.includes(name))
    if (unknown === undefined) return names
    const nearest = nearestName(unknown, known)
    const hint = nearest === undefined ? '' : ` (the nearest is ${nearest})`
    throw usageError(`${flag} names ${unknown}, which the host file does not have${hint}`)
  }
  const [wanted, unwanted] = [read('--include', include), read('--exclude', exclude)]
  const chosen = hosts.filter(
    ({ name }) => wanted?.includes(name) !== false && unwanted?.includes(name) !== true,
  )
  if (chosen.length > 0) return chosen
  throw usageError('--include and --exclude leave no host')
}

/** The means to reach other hosts: the ssh command, the environment and the folder. */
export interface Reach {
  /** The program and its arguments, `ssh` by default. */
  readonly ssh: readonly [string, ...string[]]
  readonly env: NodeJS.ProcessEnv
  /** The working directory on all hosts, including this one. */
  readonly cwd: string
}

/** The value of `--ssh`. */
export function readSsh(text: string): Reach['ssh'] {
  const [program = 'ssh', ...args] = text.trim().split(/\s+/)
  return [program, ...args]
}

/** Exit code of ssh if ssh failed instead of the command. */
export const SSH_FAILED = 255

/**
 * Runs a command on another host. Signals are sent as lines to its standard input. The end of the input
 * tells the command that the connection is lost.
 */
export function openConnection(
  { name, user, port }: RemoteHost,
  command: string,
  { ssh: [program, ...args], env }: Reach,
  onOutput: (stream: 'stdout' | 'stderr', text: string) => void,
) {
  // The user's options come first, because ssh uses the first value of an option.
  const own = ['BatchMode=yes', 'ServerAliveInterval=10', 'ConnectTimeout=15']
  const options = ['-T', ...own.flatMap((option) => ['-o', option])]
  const place = [
    ...(port === undefined ? [] : ['-p', String(port)]),
    user === undefined ? name : `${user}@${name}`,
  ]
  // Use a separate process group, so that the terminal's Ctrl-C does not end the connection.
  const child = spawn(program, [...args, ...options, ...place, command], {
    env,
    detached: true,
    stdio: ['pipe', 'pipe', 'pipe'],
  })
  child.stdin.on('error', () => undefined)
  for (const stream of ['stdout', 'stderr'] as const) {
    child[stream].setEncoding('utf8').on('data', (text: string) => {
      onOutput(stream, text)
    })
  }
  return {
    /** Resolves when the command ends. `isLost`: the host is unreachable, or the connection broke. */
    ended: new Promise<{ readonly code: number; readonly isLost: boolean }>((resolve) => {
      child.once('error', (error) => {
        onOutput('stderr', `${program}: ${error.message}\n`)
        resolve({ code: SSH_FAILED, isLost: true })
      })
      child.once('close', (code) => {
        resolve({ code: code ?? SSH_FAILED, isLost: code === null || code === SSH_FAILED })
      })
    }),
    send(line: string): void {
      child.stdin.write(`${line}\n`)
    },
    /** Ends the connection without waiting. The command stops when its input ends. */
    close(): void {
      child.kill('SIGKILL')
    },
  }
}

/** Makes a shell command that changes to the directory, adds Node to the PATH and runs the command. */
export function commandIn(cwd: string, command: string): string {
  const path = `PATH="$PATH":${quoted(dirname(process.execPath))}`
  return `cd ${quoted(cwd)} && ${path} && export PATH && ${command}`
}

/** The last line of a text; undefined if the text is blank. */
export function lastLineOf(text: string): string | undefined {
  return text.trim().split('\n').findLast(Boolean)
}

export interface Obstacle {
  readonly problem: string
  /** True if the host did not answer. Another attempt may succeed, because the host may be starting. */
  readonly isTemporary: boolean
}

/** Errors of ssh for a host that does not answer, also behind a jump host. */
const NO_ANSWER =
  /^(ssh: connect to host |Timeout, server |((kex|ssh)_exchange_identification: .*)?Connection (closed|reset|timed out))|connect failed: (Connection|No route)|: Temporary failure in name resolution/m
/** Permanent errors of ssh: a wrong key or host name, also of a jump host. */
const REFUSED = /Permission denied|verification failed|Name or service not known|not found/

/** Returns why tsrun cannot run on a host together with this host; undefined if it can. */
export async function whyNotOn(host: RemoteHost, reach: Reach): Promise<Obstacle | undefined> {
  let [stdout, stderr] = ['', '']
  // Begin with `echo`: a start-up file of the shell may have printed an incomplete line.
  const command = commandIn(reach.cwd, 'echo && npx --no -- tsrun --version </dev/null')
  const connection = openConnection(host, command, reach, (stream, text) => {
    if (stream === 'stdout') stdout += text
    else stderr += text
  })
  const { code, isLost } = await connection.ended
  if (code !== 0) {
    const problem = lastLineOf(stderr) ?? `exit code ${code}`
    return { problem, isTemporary: isLost && NO_ANSWER.test(stderr) && !REFUSED.test(stderr) }
  }
  const other = stdout.match(/^\d+\.\d+\.\d+\S*$/gm)?.at(-1) ?? stdout.trim()
  if (other === version) return undefined
  return { problem: `it has tsrun ${other}, and this host ${version}`, isTemporary: false }
}

/** The environment variable that marks a launcher started by `tsrun hosts`. */
export const PARENT_PIPE = 'TSRUN_PARENT_PIPE'

/**
 * Handles the signals that `tsrun hosts` sends as lines on standard input. The end of the input stops
 * the job, so that nothing keeps running on a host after its connection is lost.
 */
export function watchParentPipe(
  input: Readable,
  env: NodeJS.ProcessEnv,
  interrupts: Interrupts,
): void {
  if (env[PARENT_PIPE] === undefined) return
  // Do not let ranks and their children inherit the variable.
  Reflect.deleteProperty(env, PARENT_PIPE)
  const splitter = lineSplitter()
  input.on('data', (chunk: Buffer) => {
    for (const { text } of splitter.push(chunk)) {
      if (/^SIG[A-Z0-9]+$/.test(text)) process.kill(process.pid, text)
    }
  })
  input.on('error', () => undefined)
  input.on('close', () => {
    interrupts.interrupt({ exitCode: 129, reason: 'the connection to this host is lost' })
  })
}
