import { spawn, type ChildProcess } from 'node:child_process'
import { StringDecoder } from 'node:string_decoder'
import type { RemoteHost } from './hostfile.ts'

/** How `tsrun hosts` reaches its hosts. */
export interface Reach {
  /** The program and its arguments, `ssh` by default. */
  readonly ssh: readonly [string, ...string[]]
  readonly env: NodeJS.ProcessEnv
}

/** How the command on a host has ended. */
export interface RemoteEnd {
  readonly code: number
  /** Whether ssh itself has failed: the host cannot be reached, or is lost. */
  readonly isLost: boolean
}

/** The exit code of ssh when it, and not the command, has failed. */
const SSH_FAILED = 255

/**
 * A command that runs on another host. Its standard input is its lifeline: signals go there as lines, and
 * its end tells the command that the connection is lost.
 */
export class Connection {
  readonly host: RemoteHost
  readonly ended: Promise<RemoteEnd>
  readonly #child: ChildProcess

  /** @param onOutput - gets what the command prints */
  constructor(
    host: RemoteHost,
    command: string,
    { ssh: [program, ...args], env }: Reach,
    onOutput: (stream: 'stdout' | 'stderr', text: string) => void,
  ) {
    this.host = host
    const { name, user, port } = host
    const options = ['-T', '-o', 'BatchMode=yes', '-o', 'ServerAliveInterval=10']
    const place = [
      ...(port === undefined ? [] : ['-p', String(port)]),
      user === undefined ? name : `${user}@${name}`,
    ]
    // In a process group of its own, Ctrl-C of the terminal does not end the connection.
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

  /** Gives the command a line. */
  send(line: string): void {
    this.#child.stdin!.write(`${line}\n`)
  }

  /** Ends the connection without waiting for the command, which stops when it notices. */
  close(): void {
    this.#child.kill('SIGKILL')
  }
}

/** Quotes a text for a POSIX shell. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}
