import { availableParallelism } from 'node:os'
import type { Argv } from 'yargs'
import { nearestName } from '@tsrun/core'
import { flagTable, type Flag, type FlagValues } from '../args/flags.ts'
import { toJobOptions } from '../args/job-options.ts'
import { completeSettings, describeEnvironment, variablesOf } from '../args/settings.ts'
import { runJob } from '../job/agent.ts'
import { createJob } from '../job/job.ts'
import { assumedPlan, describePlan, describePlanAsJson, planAttempt } from '../job/plan.ts'
import { findScript } from '../job/script.ts'
import { Announcer } from '../logs/console.ts'
import { rendezvous } from '../nodes/rendezvous.ts'
import { commandNames, type AddCommand, type CommandContext } from './context.ts'

/** Starts a job. @param command - the script, then its own arguments, untouched */
export type RunHandler = (values: FlagValues, command: readonly string[]) => Promise<void>

/** `tsrun [flags] script [arguments of the script]`: the command without a name. */
export function addRun(run: RunHandler): AddCommand {
  return (parser) =>
    parser
      .command(
        '$0',
        false,
        // The help page already has the flags that the whole command line is parsed with.
        (own: Argv, isHelp?: boolean) => (isHelp === true ? own : addFlags(own)),
        async (argv: Record<string, unknown>) => {
          await run(readFlags(argv), (argv['--'] as readonly string[] | undefined) ?? [])
        },
      )
      .epilogue(environmentText())
}

/** Adds the flags of a job; those spelled with underscores are not on the help page. */
export function addFlags(parser: Argv): Argv {
  for (const flag of flagTable) {
    const { name, aliases = [], value, description, fallback } = flag
    const type = { type: value === undefined ? 'boolean' : 'string', global: false } as const
    parser.option(name, {
      ...type,
      alias: aliases,
      requiresArg: value !== undefined,
      describe: description,
      ...(fallback === undefined ? {} : { defaultDescription: fallback }),
    })
    for (const other of underscored(flag)) {
      parser.option(other, { ...type, requiresArg: value !== undefined, hidden: true })
    }
  }
  return parser
}

/** The names of a flag that differ when they are spelled with underscores. */
function underscored({ name, aliases = [] }: Flag): string[] {
  return [name, ...aliases]
    .filter((one) => one.includes('-'))
    .map((one) => one.replaceAll('-', '_'))
}

function readFlags(argv: Record<string, unknown>): FlagValues {
  const values: FlagValues = {}
  for (const flag of flagTable) {
    const names = [flag.name, ...underscored(flag)]
    const given = Object.keys(argv).findLast(
      (name) => names.includes(name) && argv[name] !== undefined,
    )
    if (given === undefined) continue
    const value = argv[given]
    values[flag.name] = typeof value === 'string' ? value : JSON.stringify(value)
  }
  return values
}

function environmentText(): string {
  const shared = flagTable.flatMap((flag) =>
    variablesOf(flag).filter((name) => name.startsWith('PET_')),
  )
  return (
    'A flag that is not given is taken from the environment: TSRUN_<FLAG>, for example ' +
    `TSRUN_NPROC; then, for the flags that torchrun has too, ${shared.join(', ')}.`
  )
}

/**
 * Runs the job that the command line describes, or prints the plan of it.
 *
 * @throws ERR_TSR_USAGE, ERR_TSR_SCRIPT and others, when the job cannot be started
 */
export async function startJob(
  values: FlagValues,
  command: readonly string[],
  context: CommandContext,
): Promise<void> {
  const { env, cwd, console, interrupts } = context
  const settings = completeSettings(values, env)
  const options = toJobOptions(settings, command, availableParallelism())
  const script = findScript(options.script, cwd, nearestCommand(options.script))
  const job = createJob(options, env, cwd, script)
  const origin = describeEnvironment(settings)
  if (options.dryRun) {
    if (origin !== undefined) console.write('stderr', `tsrun: ${origin}\n`)
    const plan = planAttempt(job, assumedPlan(job), 0)
    const describe = options.logFormat === 'json' ? describePlanAsJson : describePlan
    console.write('stdout', describe(plan))
    return
  }
  const announcer = new Announcer(console, options.logFormat)
  if (origin !== undefined) announcer.say('settings', origin)
  context.exitCode = await runJob(job, rendezvous, { console, announcer, interrupts })
}

/** The command that was probably meant with the name of a script that does not exist. */
function nearestCommand(script: string): string | undefined {
  if (/[./\\]/.test(script)) return undefined
  const name = nearestName(script, commandNames)
  return name === undefined ? undefined : `tsrun ${name}`
}
