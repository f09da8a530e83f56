import { randomBytes } from 'node:crypto'
import { statSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { isStrongToken, readFileText, tsrError } from '@tsrun/core'
import type { RankStatus } from '@tsrun/distributed/record'
import type { Chaos } from './chaos/chaos.ts'
import type { JobOptions, ProgramOptions } from '../args/job-options.ts'
import { usageError } from '../args/readers.ts'
import type { Announcer, Console } from '../logs/console.ts'
import type { EventLog } from '../logs/event-log.ts'
import type { RankLineReader } from '../logs/lines.ts'
import { wantsColour } from '../logs/presenter.ts'
import type { JobInput } from './process/input.ts'
import type { Interrupts } from './process/interrupts.ts'
import { findDevices } from './placement/devices.ts'
import { softLimit } from './placement/limits.ts'
import { packageFolder } from '../package.ts'
import { hasLoader } from '../protocol/loaders.ts'
import { refuseModuleSyntax } from './code/module-format.ts'
import { loaderArguments, nodeAbilities, resolveFrom, type Script } from './code/script.ts'

/** A job with validated options, from which every attempt is planned. */
export type Job = ReturnType<typeof createJob>

export interface AttemptFacts {
  readonly runId: string
  readonly worldSize: number
  readonly restartCount: number
}

export interface JobWatcher {
  /** Shows the ranks of this attempt from now on. */
  follow?(attempt: AttemptFacts, readRanks: () => readonly RankStatus[]): void
  /** Shows the report of a failure, which stays visible while the ranks restart. */
  showFailure?(report: string, attempt: Omit<AttemptFacts, 'worldSize'>): void
}

/** The parts of the launcher process that a job uses. */
export interface JobContext {
  readonly console: Console
  readonly announcer: Announcer
  readonly interrupts: Interrupts
  /** Receives every line of the ranks, including hidden ones. */
  readonly onLine?: RankLineReader | undefined
  /** The standard input of the ranks; without it, their input is empty. */
  readonly input?: JobInput | undefined
  /** Records the run for `tsrun logs`. Call the returned function with the exit code at the end. */
  readonly remember?: (runId: string) => (exitCode: number) => void
  readonly chaos?: Chaos | undefined
  readonly events?: EventLog | undefined
  readonly watchers?: readonly JobWatcher[]
}

/** @param code - the file whose language determines the loader */
export function createJob(
  options: JobOptions,
  env: NodeJS.ProcessEnv,
  cwd: string,
  script: Script,
  code = script,
  devices = findDevices(env),
) {
  const { placement, rendezvous, protection, program } = options
  return {
    ...options,
    env,
    identity: makeRunIdentity(env, { ...placement, ...rendezvous, ...protection }),
    devices,
    colour: {
      stdout: wantsColour(process.stdout, env),
      stderr: wantsColour(process.stderr, env),
    },
    script: script.path,
    /** The command that runs the script, without the script's arguments. */
    command: [
      process.execPath,
      ...argumentsOf(script, env, cwd, code, program),
      script.path,
    ] as const,
  }
}

function argumentsOf(
  script: Script,
  env: NodeJS.ProcessEnv,
  cwd: string,
  code: Script,
  { nodeArguments }: ProgramOptions,
): string[] {
  // The script `rank/program.ts` replaces its own process with the user's program.
  if (script.language === 'program')
    return [fileURLToPath(new URL('dist/program.js', packageFolder))]
  const preload = new URL('dist/preload.js', packageFolder)
  const places = [join(cwd, 'any.js'), code.path, import.meta.url]
  const node = nodeAbilities(env, nodeArguments)
  const loader = loaderArguments(code, node, places)
  if (code === script) {
    const tsx = loader.length === 0 ? undefined : resolveFrom(places, 'tsx')
    refuseModuleSyntax(script, { hasLoader: hasLoader(node.nodeOptions), tsx })
  }
  // By default, each WebAssembly memory reserves 10 GiB of the address space.
  const isLimited = Number.isFinite(softLimit('Max address space'))
  const memory = isLimited ? ['--disable-wasm-trap-handler'] : []
  return ['--enable-source-maps', '--import', preload.href, ...loader, ...memory, ...nodeArguments]
}

/**
 * Makes a unique run ID, and reads the token from `--token-file`, else from TSRUN_TOKEN. On a single
 * host the default is a random token.
 */
export function makeRunIdentity(
  env: NodeJS.ProcessEnv,
  facts: {
    readonly nnodes: number
    readonly tokenFile: string | undefined
    readonly rdzvId?: string | undefined
  },
  now = new Date(),
) {
  const [date, time] = now.toISOString().replaceAll(/[-:]/g, '').split(/[T.]/) as [string, string]
  return {
    /**
     * The name of the job in logs and folders, for example 20261121-153012-9f3a1c. It sorts by start time.
     * A `--rdzv-id` is its prefix.
     */
    runId: `${facts.rdzvId === undefined ? '' : `${facts.rdzvId}-`}${date}-${time}-${randomBytes(3).toString('hex')}`,
    /** The secret of the job, hexadecimal: 256 random bits, or the user's token. */
    token: givenToken(env, facts.tokenFile) ?? makeToken(facts.nnodes),
  }
}

function givenToken(env: NodeJS.ProcessEnv, file: string | undefined): string | undefined {
  const token = file === undefined ? env['TSRUN_TOKEN'] : readToken(file)
  if (token === undefined || (token === '' && file === undefined)) return undefined
  if (isStrongToken(token)) return token
  const where =
    file === undefined ? 'TSRUN_TOKEN is not a' : `The file ${file} (--token-file) holds no`
  throw usageError(`${where} hexadecimal secret of at least 32 digits (an even number, not all 0)`)
}

function readToken(file: string): string {
  const read = () => {
    try {
      return { mode: statSync(file).mode, token: readFileText(file).trim() }
    } catch (cause) {
      throw usageError(`The token file cannot be read: ${(cause as Error).message}`, cause)
    }
  }
  const { mode, token } = read()
  // Kubernetes mounts secrets group-readable for non-root users. Windows has no such modes.
  if (process.platform === 'win32' || (mode & 0o027) === 0) return token
  const rights = (mode & 0o777).toString(8).padStart(4, '0')
  throw usageError(
    `The token file ${file} can be read by others (mode ${rights}): chmod 600 ${file}; of a secret that is mounted, set the mode to 0400 or 0440`,
  )
}

function makeToken(nnodes: number): string {
  if (nnodes > 1) throw tsrError('ERR_TSR_TOKEN_MISSING', { nnodes })
  return randomBytes(32).toString('hex')
}
