import { spawn } from 'node:child_process'
import { dirname } from 'node:path'
import { quoted } from '../args/readers.ts'
import { version } from '../package.ts'
import type { RemoteHost } from './hostfile.ts'

/** How to reach other hosts. */
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
 * Runs a command on another host. Signals are sent as lines to its standard input, whose end tells the
 * command that the connection is lost.
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
  // In a separate process group, the terminal's Ctrl-C does not end the connection.
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
    /** How the command ended. It is lost if ssh failed: the host is unreachable, or the connection broke. */
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
    /** Ends the connection without waiting. The command stops when it detects that. */
    close(): void {
      child.kill('SIGKILL')
    },
  }
}

/** A command for the shell of a host. It changes to the directory and adds Node to the PATH first. */
export function commandIn(cwd: string, command: string): string {
  const path = `PATH="$PATH":${quoted(dirname(process.execPath))}`
  return `cd ${quoted(cwd)} && ${path} && export PATH && ${command}`
}

/** The last line of a text; undefined if the text is blank. */
export function lastLineOf(text: string): string | undefined {
  return text.trim().split('\n').findLast(Boolean)
}

/** Why a host cannot take part in a job. */
export interface Obstacle {
  readonly problem: string
  /** Whether another attempt may succeed, because the host was not reached: it is down, or still starting. */
  readonly isTemporary: boolean
}

/** What ssh says of a host that does not answer, also through another host. */
const NO_ANSWER =
  /^(ssh: connect to host |Timeout, server |((kex|ssh)_exchange_identification: .*)?Connection (closed|reset|timed out))|connect failed: (Connection|No route)|: Temporary failure in name resolution/m
/** What another attempt would not change: a wrong key or name, also of a host on the way. */
const REFUSED = /Permission denied|verification failed|Name or service not known|not found/

/** Why tsrun cannot run on a host, or not together with this one; undefined if it can. */
export async function whyNotOn(host: RemoteHost, reach: Reach): Promise<Obstacle | undefined> {
  let [stdout, stderr] = ['', '']
  // A start-up file of the shell may have printed a line without an end.
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
