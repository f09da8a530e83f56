import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import type { JobOptions } from './args/job-options.ts'
import { colourLevel, wantsColour } from './logs/colour.ts'
import type { StreamName } from './logs/line.ts'
import type { NodePlan } from './nodes/node-plan.ts'
import { packageFolder } from './package-folder.ts'
import { findDevices, type Devices } from './plan/devices.ts'
import { planRanks, type RankPlan } from './plan/rank-plan.ts'
import { makeRunIdentity, type RunIdentity } from './plan/run-identity.ts'
import { findScript, type Script } from './plan/script.ts'
import { loaderArguments, nodeAbilities } from './plan/typescript-loader.ts'

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

/** What `--nproc auto` means. */
export const cores = availableParallelism()

/**
 * Looks at the script and at what Node needs to run it.
 *
 * @throws ERR_TSR_SCRIPT, ERR_TSR_TYPESCRIPT_LOADER, ERR_TSR_USAGE
 */
export function prepareJob(options: JobOptions, env: NodeJS.ProcessEnv, cwd: string): Job {
  const script = findScript(options.script, cwd)
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
