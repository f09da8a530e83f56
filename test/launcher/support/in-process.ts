import { Writable } from 'node:stream'
import { runCommandLine } from '../../internals/launcher/commands.ts'
import { openConsole } from '../../internals/launcher/logs.ts'
import { cleanEnvironment, fixtures } from './tsrun.ts'

export interface HereOptions {
  readonly env?: NodeJS.ProcessEnv
  readonly cwd?: string
}

export interface HereFinished {
  readonly code: number
  readonly stdout: string
  readonly stderr: string
}

/** A `tsrun` that runs in this process. Only its ranks, if there are any, are processes. */
export class RunHere {
  stdout = ''
  stderr = ''
  readonly finished: Promise<HereFinished>
  readonly #stop = new AbortController()

  constructor(args: readonly string[], { env = {}, cwd = fixtures }: HereOptions = {}) {
    const collect = (name: 'stdout' | 'stderr'): Writable =>
      new Writable({
        write: (chunk: Buffer, _encoding, done) => {
          this[name] += chunk.toString()
          done()
        },
      })
    const outputs = { stdout: collect('stdout'), stderr: collect('stderr') }
    const running = runCommandLine(args, {
      env: { ...cleanEnvironment(), ...env },
      cwd,
      console: openConsole(outputs, () => undefined),
      interrupts: {
        stop: this.#stop.signal,
        kill: new AbortController().signal,
        handle: () => undefined,
        interrupt: (interruption) => {
          this.#stop.abort(interruption)
        },
        force: () => undefined,
      },
    })
    this.finished = running.then((code) => ({ code, stdout: this.stdout, stderr: this.stderr }))
  }

  /** Does what Ctrl-C or another signal does. */
  interrupt(interruption = { exitCode: 130, reason: 'Ctrl-C' }): void {
    this.#stop.abort(interruption)
  }
}

/** Runs `tsrun` to its end in this process. */
export async function tsrunHere(
  args: readonly string[],
  options?: HereOptions,
): Promise<HereFinished> {
  return await new RunHere(args, options).finished
}
