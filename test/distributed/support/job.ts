import { spawn, type ChildProcess } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { toEnvironment } from '@tsrun/core'
import { connectStore, startStoreServer, type Store, type StoreServer } from '@tsrun/store'

const fixtures = fileURLToPath(new URL('../../fixtures/distributed/', import.meta.url))

/** A line that a rank has written with `say`. */
export interface Said {
  readonly word: string
  /** Milliseconds on the clock of `monotonic()`. */
  readonly at: number
  readonly code?: string
  readonly message?: string
  readonly facts?: Readonly<Record<string, unknown>>
  readonly [fact: string]: unknown
}

export interface JobOptions {
  readonly size: number
  /** File in test/fixtures/distributed. */
  readonly program: string
  readonly env?: NodeJS.ProcessEnv
  /** Of one rank. */
  readonly envOf?: (rank: number) => NodeJS.ProcessEnv
  readonly flags?: readonly string[]
}

/** Milliseconds on the clock that all processes of the host share. */
export function monotonic(): number {
  return Number(process.hrtime.bigint() / 1000n) / 1000
}

const jobs = new Set<Job>()
const single = new Set<RankProcess>()

/** Kills what the test has started, and ends the stores. */
export async function endJobs(): Promise<void> {
  for (const { child, ended } of single) if (ended === undefined) child.kill('SIGKILL')
  await Promise.all([...single].map((process) => process.end()))
  await Promise.all([...jobs].map((job) => job.end()))
  single.clear()
  jobs.clear()
}

/** One process of a job. */
export class RankProcess {
  readonly child: ChildProcess
  readonly said: Said[] = []
  output = ''
  /** When the process was gone, and how. */
  ended:
    | { readonly code: number | null; readonly signal: string | null; readonly at: number }
    | undefined
  readonly #waiting = new Set<() => void>()

  constructor(child: ChildProcess) {
    this.child = child
    let rest = ''
    child.stdout!.setEncoding('utf8').on('data', (text: string) => {
      this.output += text
      const lines = (rest + text).split('\n')
      rest = lines.pop()!
      for (const line of lines) if (line.startsWith('{')) this.said.push(JSON.parse(line) as Said)
      this.#wake()
    })
    child.stderr!.setEncoding('utf8').on('data', (text: string) => (this.output += text))
    let at = 0
    child.once('exit', () => (at = monotonic()))
    child.once('close', (code, signal) => {
      this.ended = { code, signal, at }
      this.#wake()
    })
  }

  /** Waits until the rank has said this. */
  async hear(word: string): Promise<Said> {
    await this.#until(
      () => this.said.some((line) => line.word === word) || this.ended !== undefined,
    )
    const line = this.said.find((each) => each.word === word)
    if (line === undefined) throw new Error(`never said ${word}, but:\n${this.output}`)
    return line
  }

  async end(): Promise<NonNullable<RankProcess['ended']>> {
    await this.#until(() => this.ended !== undefined)
    return this.ended!
  }

  async #until(holds: () => boolean): Promise<void> {
    while (!holds()) {
      await new Promise<void>((resolve) => this.#waiting.add(resolve))
    }
  }

  #wake(): void {
    for (const resolve of this.#waiting) resolve()
    this.#waiting.clear()
  }
}

/** Ranks as a launcher would start them, with the store in this process. */
export class Job {
  readonly ranks: RankProcess[] = []
  readonly token = randomBytes(32).toString('hex')
  readonly #options: JobOptions
  #server: StoreServer | undefined
  #store: Store | undefined

  private constructor(options: JobOptions) {
    this.#options = options
  }

  /** Starts the ranks; those that `isHeldBack` names wait for `startRank`. */
  static async start(
    options: JobOptions,
    isHeldBack: (rank: number) => boolean = () => false,
  ): Promise<Job> {
    const job = new Job(options)
    jobs.add(job)
    job.#server = await startStoreServer({ host: '127.0.0.1', port: 0, token: job.token })
    for (let rank = 0; rank < options.size; rank++) if (!isHeldBack(rank)) job.startRank(rank)
    return job
  }

  /** A client of the job's store. */
  async store(): Promise<Store> {
    this.#store ??= await connectStore({ ...this.#server!.endpoint, token: this.token })
    return this.#store
  }

  startRank(rank: number): RankProcess {
    const { size, program, env, envOf, flags = [] } = this.#options
    const { host, port } = this.#server!.endpoint
    const rankEnvironment = toEnvironment({
      ...{ rank, worldSize: size, localRank: rank, localWorldSize: size, nodeRank: 0, nnodes: 1 },
      ...{ masterAddr: host, masterPort: port, runId: 'test', token: this.token, restartCount: 0 },
    })
    const process = startProgram(program, { ...rankEnvironment, ...env, ...envOf?.(rank) }, flags)
    this.ranks[rank] = process
    return process
  }

  /** Waits until all have ended; fails unless all have ended well. */
  async succeed(): Promise<void> {
    for (const [rank, process] of this.ranks.entries()) {
      const { code, signal } = await process.end()
      if (code !== 0)
        throw new Error(`rank ${rank} ended with ${code ?? signal}:\n${process.output}`)
    }
  }

  async end(): Promise<void> {
    await this.#store?.close()
    await this.#server?.close()
  }
}

/** Ranks that no launcher of tsrun has started: variables are all that they have. */
export async function startAlone(
  size: number,
  [program, ...words]: readonly [string, ...string[]],
  env: NodeJS.ProcessEnv = {},
): Promise<RankProcess[]> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  server.close()
  await once(server, 'close')
  const common = { WORLD_SIZE: String(size), MASTER_ADDR: '127.0.0.1', MASTER_PORT: String(port) }
  return Array.from({ length: size }, (_, rank) =>
    startProgram(program, { ...common, RANK: String(rank), ...env }, [], words),
  )
}

/** Runs a program as one rank, or outside a job. */
export function startProgram(
  program: string,
  env: NodeJS.ProcessEnv,
  flags: readonly string[] = [],
  words: readonly string[] = [],
): RankProcess {
  const child = spawn(process.execPath, [...flags, `${fixtures}${program}`, ...words], {
    env: { ...withoutRank(process.env), ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  const started = new RankProcess(child)
  single.add(started)
  return started
}

function withoutRank(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const ours = /^(TSRUN_|MASTER_|RANK$|LOCAL_|WORLD_SIZE$|NODE_RANK$|GROUP_RANK$|NODE_OPTIONS$)/
  return Object.fromEntries(Object.entries(env).filter(([name]) => !ours.test(name)))
}
