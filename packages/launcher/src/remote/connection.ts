import { spawn, type ChildProcess } from 'node:child_process'
import { dirname } from 'node:path'
import { StringDecoder } from 'node:string_decoder'
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

/** How the command on a host ended. */
export interface RemoteEnd {
  readonly code: number
  /** Whether ssh failed: the host is unreachable, or the connection was lost. */
  readonly isLost: boolean
}

/** Exit code of ssh if ssh failed instead of the command. */
export const SSH_FAILED = 255

/**
 * A command that runs on another host. Signals are sent as lines to its standard input, whose end tells
 * the command that the connection is lost.
 */
export class Connection {
  readonly host: RemoteHost
  readonly ended: Promise<RemoteEnd>
  readonly #child: ChildProcess

  constructor(
    host: RemoteHost,
    command: string,
    { ssh: [program, ...args], env }: Reach,
    onOutput: (stream: 'stdout' | 'stderr', text: string) => void,
  ) {
    this.host = host
    const { name, user, port } = host
    // The user's options come first, because ssh uses the first value of an option.
    const own = ['BatchMode=yes', 'ServerAliveInterval=10', 'ConnectTimeout=15']
    const options = ['-T', ...own.flatMap((option) => ['-o', option])]
    const place = [
      ...(port === undefined ? [] : ['-p', String(port)]),
      user === undefined ? name : `${user}@${name}`,
    ]
    // In a separate process group, the terminal's Ctrl-C does not end the connection.
    this.#child = spawn(program, [...args, ...options, ...place, command], {
      env,
      detached: true,
      stdio: ['pipe', 'pipe', 'pipe'],
    })
    this.#child.stdin!.on('error', () => undefined)
    for (const stream of ['stdout', 'stderr'] as const) {
      const decoder = new StringDecoder('utf8')
      this.#child[stream]!.on('data', (chunk: Buffer) => {
        onOutput(stream, decoder.write(chunk))
      })
    }
    this.ended = new Promise((resolve) => {
      this.#child.once('error', (error) => {
        onOutput('stderr', `${program}: ${error.message}\n`)
        resolve({ code: SSH_FAILED, isLost: true })
      })
      this.#child.once('close', (code) => {
        resolve({ code: code ?? SSH_FAILED, isLost: code === null || code === SSH_FAILED })
      })
    })
  }

  send(line: string): void {
    this.#child.stdin!.write(`${line}\n`)
  }

  /** Ends the connection without waiting. The command stops when it detects that. */
  close(): void {
    this.#child.kill('SIGKILL')
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

/** Why tsrun cannot run on a host, or not together with this one; undefined if it can. */
export async function whyNotOn(host: RemoteHost, reach: Reach): Promise<string | undefined> {
  let [stdout, stderr] = ['', '']
  const command = commandIn(reach.cwd, 'npx --no -- tsrun --version </dev/null')
  const connection = new Connection(host, command, reach, (stream, text) => {
    if (stream === 'stdout') stdout += text
    else stderr += text
  })
  const { code } = await connection.ended
  if (code !== 0) return lastLineOf(stderr) ?? `exit code ${code}`
  // A start-up file of the shell may print something, too.
  const other = stdout.match(/^\d+\.\d+\.\d+\S*$/gm)?.at(-1) ?? stdout.trim()
  return other === version ? undefined : `it has tsrun ${other}, and this host ${version}`
}
