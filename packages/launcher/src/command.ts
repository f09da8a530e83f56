import { isTsrError } from '@tsrun/core'
import { runJob } from './job/agent.ts'
import {
  answerCompletion,
  helpText,
  readCommandLine,
  showCompletionScript,
} from './args/command-line.ts'
import { toJobOptions } from './args/job-options.ts'
import { completeSettings, describeEnvironment } from './args/settings.ts'
import { diagnose } from './commands/doctor.ts'
import { flightText } from './commands/flight.ts'
import { runSetup } from './setup/setup.ts'
import { psText } from './commands/ps.ts'
import { cores, planLife, prepareJob } from './job/job.ts'
import { Announcer } from './logs/console.ts'
import { Console } from './logs/console.ts'
import { assumedPlan } from './job/nodes.ts'
import { describePlan, describePlanAsJson } from './job/plan.ts'
import {
  listenForInterrupts,
  outputClosed,
  type Interruption,
  type Interrupts,
} from './processes/interrupts.ts'
import { version } from './job/package.ts'

/** Exit code of a job that could not be started: wrong flags, no script, port taken. */
const USAGE = 2
/** Of `tsrun setup` that did not come to its end. */
const FAILED = 1

/**
 * The `tsrun` command: takes over the signals and the output of this process.
 *
 * @param argv - without the program and its script
 * @returns the exit code: 0, that of the rank that failed first, 128 + n for signal n, 2 for usage
 */
export async function runCommand(argv: readonly string[]): Promise<number> {
  const interrupts = listenForInterrupts()
  const { stdout, stderr } = process
  const console = new Console({ stdout, stderr }, () => {
    interrupts.interrupt(outputClosed)
  })
  try {
    if (argv[0] === 'completion') {
      showCompletionScript()
      return 0
    }
    if (argv[0] === '--get-yargs-completions') {
      await answerCompletion(argv)
      return 0
    }
    if (argv[0] === 'ps') {
      console.write('stdout', psText(argv.slice(1)))
      return 0
    }
    if (argv[0] === 'flight') {
      console.write('stdout', flightText(argv.slice(1)))
      return 0
    }
    if (argv[0] === 'doctor') {
      const { text, exitCode } = await diagnose(argv.slice(1), interrupts.stop)
      console.write('stdout', text)
      return exitCode
    }
    if (argv[0] === 'setup') return await setup(argv.slice(1), console, interrupts)
    const commandLine = await readCommandLine(argv)
    if (commandLine.action === 'help') console.write('stdout', `${await helpText()}\n`)
    if (commandLine.action === 'version') console.write('stdout', `${version}\n`)
    if (commandLine.action !== 'run') return 0

    const settings = completeSettings(commandLine.values, process.env)
    const options = toJobOptions(settings, commandLine.command, cores)
    const job = prepareJob(options, process.env, process.cwd())
    const announcer = new Announcer(console, options.logFormat)
    const origin = describeEnvironment(settings)
    if (options.dryRun) {
      if (origin !== undefined) console.write('stderr', `tsrun: ${origin}\n`)
      const plan = planLife(job, assumedPlan(job), 0)
      const describe = options.logFormat === 'json' ? describePlanAsJson : describePlan
      console.write('stdout', describe(plan))
      return 0
    }
    if (origin !== undefined) announcer.say('settings', origin)
    return await runJob(job, { console, announcer, interrupts })
  } catch (error) {
    if (!isTsrError(error)) throw error
    console.write('stderr', `tsrun: ${error.message}\n`)
    return USAGE
  } finally {
    await Promise.race([console.flush(), aborted(interrupts.kill)])
  }
}

async function setup(
  argv: readonly string[],
  console: Console,
  { stop }: Interrupts,
): Promise<number> {
  const print = (text: string): void => {
    console.write('stdout', text)
  }
  try {
    return await runSetup(argv, { env: process.env, cwd: process.cwd(), signal: stop, print })
  } catch (error) {
    if (stop.aborted) {
      console.write(
        'stderr',
        'tsrun setup: broken off; what was set up before, if anything, is as it was\n',
      )
      return (stop.reason as Interruption).exitCode
    }
    if (!isTsrError(error) || error.code !== 'ERR_TSR_SETUP') throw error
    console.write('stderr', `tsrun: ${error.message}\n`)
    return FAILED
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve()
    signal.addEventListener('abort', () => {
      resolve()
    })
  })
}
