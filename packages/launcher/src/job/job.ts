import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { tsrError } from '@tsrun/core'
import type { JobOptions, HostOptions } from '../args/job-options.ts'
import type { StreamName } from '../logs/lines.ts'
import { colourLevel, wantsColour } from '../logs/presenter.ts'
import { findDevices, type Devices } from './devices.ts'
import type { NodePlan } from './nodes.ts'
import { packageFolder } from './package.ts'
import { planRanks, type RankPlan } from './plan.ts'
import { findScript, type Script, loaderArguments, nodeAbilities } from './script.ts'

/** A job as it was asked for, checked: every life of it is planned from this. */
export interface Job {
  readonly options: JobOptions
  readonly env: NodeJS.ProcessEnv
  readonly identity: RunIdentity
  readonly devices: Devices
  readonly colour: Readonly<Record<StreamName, boolean>>
  readonly script: string
  readonly nodeArguments: readonly string[]
}

/**
 * Looks at the script and at what Node needs to run it.
 *
 * @throws ERR_TSR_SCRIPT, ERR_TSR_TYPESCRIPT_LOADER, ERR_TSR_USAGE
 */
export function prepareJob(
  options: JobOptions,
  env: NodeJS.ProcessEnv,
  cwd: string,
  nearestCommand?: string,
): Job {
  const script = findScript(options.script, cwd, nearestCommand)
  return createJob(options, env, cwd, script)
}

/** What Node has to know beside the script. */
export interface NodeSetup {
  /** The file whose language the ranks have to understand. */
  readonly code: Script
  /** More arguments of Node. */
  readonly execArgv: readonly string[]
}

/**
 * A job of a script that is known.
 *
 * @throws ERR_TSR_TYPESCRIPT_LOADER
 */
export function createJob(
  options: JobOptions,
  env: NodeJS.ProcessEnv,
  cwd: string,
  script: Script,
  { code, execArgv }: NodeSetup = { code: script, execArgv: [] },
): Job {
  const preload = new URL('dist/preload.js', packageFolder)
  return {
    options,
    env,
    identity: makeRunIdentity(env, options),
    devices: findDevices(env),
    colour: {
      stdout: wantsColour(process.stdout, env),
      stderr: wantsColour(process.stderr, env),
    },
    script: script.path,
    nodeArguments: [
      '--enable-source-maps',
      '--import',
      preload.href,
      ...loaderArguments(code, nodeAbilities(env, execArgv), [
        join(cwd, 'any.js'),
        code.path,
        import.meta.url,
      ]),
      ...execArgv,
    ],
  }
}

/** The ranks of one life of the job on this host. */
export function planLife(
  { options, env, identity, devices, colour, script, nodeArguments }: Job,
  nodes: NodePlan,
  restartCount: number,
  environment: Readonly<Record<string, string>> = {},
): RankPlan[] {
  const { iface, portRange } = options
  const forced = options.logFormat !== 'json' && colour.stdout && env['FORCE_COLOR'] === undefined
  return planRanks({
    options,
    node: process.execPath,
    nodeArguments,
    script,
    nodes,
    token: identity.token,
    restartCount,
    env,
    devices,
    extraEnvironment: {
      ...(forced ? { FORCE_COLOR: colourLevel(process.stdout, env) } : {}),
      ...(iface === undefined ? {} : { TSRUN_IFACE: iface }),
      ...(portRange === undefined
        ? {}
        : { TSRUN_PORT_RANGE: `${portRange.first}-${portRange.last}` }),
      ...environment,
    },
  })
}

export interface RunIdentity {
  /** Names the job in logs and directories; sorts by start time, for example 20261121-153012-9f3a1c. */
  readonly runId: string
  /** Secret of the job: at least 128, by default 256 random bits, hexadecimal. */
  readonly token: string
}

/**
 * A run id that no other run has, and the token: that of `--token-file`, else TSRUN_TOKEN, else, on
 * a single host, a random one.
 *
 * @throws ERR_TSR_USAGE when the token is no hexadecimal text of 32 digits or more;
 * ERR_TSR_TOKEN_MISSING
 */
export function makeRunIdentity(
  env: NodeJS.ProcessEnv,
  { nnodes, tokenFile }: Pick<HostOptions, 'nnodes' | 'tokenFile'>,
  now = new Date(),
): RunIdentity {
  const [date, time] = now.toISOString().replaceAll(/[-:]/g, '').split(/[T.]/) as [string, string]
  return {
    runId: `${date}-${time}-${randomBytes(3).toString('hex')}`,
    token: givenToken(env, tokenFile) ?? makeToken(nnodes),
  }
}

function givenToken(env: NodeJS.ProcessEnv, file: string | undefined): string | undefined {
  const token = file === undefined ? env['TSRUN_TOKEN'] : readToken(file)
  if (token === undefined || (token === '' && file === undefined)) return undefined
  if (/^([0-9a-f]{2}){16,}$/i.test(token)) return token
  const what =
    file === undefined ? 'TSRUN_TOKEN is not' : `The file ${file} (--token-file) holds no`
  const article = file === undefined ? ' a' : ''
  throw usage(`${what}${article} hexadecimal secret of at least 32 digits (an even number)`)
}

function readToken(file: string): string {
  try {
    return readFileSync(file, 'utf8').trim()
  } catch (cause) {
    throw usage(`The token file cannot be read: ${(cause as Error).message}`, cause)
  }
}

function makeToken(nnodes: number): string {
  if (nnodes > 1) throw tsrError('ERR_TSR_TOKEN_MISSING', { nnodes })
  return randomBytes(32).toString('hex')
}

function usage(problem: string, cause?: unknown): Error {
  return tsrError('ERR_TSR_USAGE', { problem }, { cause })
}
