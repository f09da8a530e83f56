import { spawn, type ChildProcess } from 'node:child_process'
import { fileURLToPath } from 'node:url'

const tsx = import.meta.resolve('tsx')
// The build, which loads ten times as fast as the sources.
const entry = fileURLToPath(new URL('../../../../packages/training/dist/index.js', import.meta.url))

/** Runs the body of an asynchronous function for each message, and answers with what it returns. */
const program = `
  import * as training from ${JSON.stringify(entry)}
  const AsyncFunction = (async () => {}).constructor
  process.on('message', (body) => {
    new AsyncFunction('training', 'load', body)(training, (url) => import(url)).then(
      (value) => process.send({ value }),
      (error) => process.send({ error: String(error?.stack ?? error) }),
    )
  })`

type Answer = { readonly value?: unknown; readonly error?: string }

/**
 * A process that loads the training package once and runs many scripts, each the body of an asynchronous
 * function that has the package as `training`, and `load(url)` to import modules. Loading a backend takes
 * longer than most of them.
 */
export class WarmProcess {
  readonly #env: Record<string, string>
  readonly #loader: readonly string[]
  #child: ChildProcess | undefined
  #output = ''

  /** @param importsTypeScript - whether scripts import modules of the tests */
  constructor(env: Record<string, string> = {}, importsTypeScript = false) {
    this.#env = env
    this.#loader = importsTypeScript ? ['--import', tsx] : []
  }

  /** What the script returns. Fails if it throws, writes anything, or ends the process. */
  async run(body: string): Promise<unknown> {
    const child = (this.#child ??= this.#start())
    const answer = await new Promise<Answer>((resolve) => {
      const ended = (code: number | null, signal: string | null): void => {
        this.#child = undefined
        resolve({ error: `the process ended with ${String(code ?? signal)}` })
      }
      child.once('close', ended)
      child.once('message', (message) => {
        child.off('close', ended)
        resolve(message as Answer)
      })
      child.send(body)
    })
    expect({ error: answer.error, output: this.#output }).toEqual({ error: undefined, output: '' })
    return answer.value
  }

  end(): void {
    this.#child?.kill()
    this.#child = undefined
  }

  #start(): ChildProcess {
    const flags = [...this.#loader, '--input-type=module', '-e', program]
    const child = spawn(process.execPath, flags, {
      env: { ...process.env, ...this.#env, NODE_OPTIONS: '' },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    })
    for (const stream of [child.stdout!, child.stderr!]) {
      stream.setEncoding('utf8').on('data', (text: string) => (this.#output += text))
    }
    return child
  }
}
