import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { isTsrError, nearestName, readLogLevel } from '@tsrun/core'
import type { FlagValues } from '../args/flags.ts'
import { remarksOn } from '../args/hints.ts'
import { type JobOptions, type ProgramOptions, toJobOptions } from '../args/job-options.ts'
import { needsFiles } from '../args/output-options.ts'
import { usageError } from '../args/readers.ts'
import { completeSettings, describeEnvironment, type Settings } from '../args/settings.ts'
import { runJob } from '../job/agent.ts'
import { exitCodeOfError, USAGE } from '../job/failure/exit-codes.ts'
import { findDevices, usesGpus, gpusOfHost, type HostGpus } from '../job/placement/devices.ts'
import { announceDetached, detach, takeDetached } from '../job/detach.ts'
import { createJob } from '../job/job.ts'
import { failureReport, type FailureReport } from '../job/on-failure.ts'
import { usableCores } from '../job/placement/limits.ts'
import { coresOf } from '../job/placement/numa.ts'
import { KEPT_BYTES, keptLogs, recordRun } from '../job/run-records.ts'
import { assumedPlace, assumedSetup, describePlan, planAttempt } from '../job/plan.ts'
import { openTraceFolder, removeTraceFolder, traceReport } from '../job/trace-folder.ts'
import { findModule, findProgram, findScript, type Script } from '../job/code/script.ts'
import { createAnnouncer, type Announcer } from '../logs/console.ts'
import type { Chaos } from '../job/chaos/chaos.ts'
import { openEventLog, type EventLog } from '../logs/event-log.ts'
import { rendezvous } from '../nodes/rendezvous.ts'
import { finishTrace, openWatchers } from '../observe.ts'
import { distributeInput } from '../job/process/input.ts'
import type { CommandContext } from './context.ts'
import { commandNames } from './table.ts'

/** The maximum number of ranks whose output is kept by default. Each rank has three open files. */
const MOST_KEPT = 128

/** Runs the job of the command line, or prints its plan. */
export async function startJob(
  values: FlagValues,
  command: readonly string[],
  context: CommandContext,
): Promise<void> {
  const { env, console } = context
  readLogLevel(env)
  const settings = completeSettings(values, env)
  const gpus = gpusOfHost(env)
  const given = toJobOptions(settings, command, {
    cores: usableCores(),
    gpus: () => gpus.preferred.length,
    usesGpus: () => usesGpus(env),
  })
  // Check that there are enough cores before starting anything.
  const { binding, nproc } = given.placement
  if (binding !== undefined) coresOf(binding, 0, nproc)
  const announcer = createAnnouncer(console, given.output.format)
  const failure = failureReport(given, context, announcer)
  try {
    await runGiven(given, settings, gpus, context, announcer, failure)
  } catch (error) {
    await failure.send(isTsrError(error) ? exitCodeOfError(error) : USAGE, error)
    throw error
  }
}

async function runGiven(
  given: JobOptions,
  settings: Settings,
  gpus: HostGpus,
  context: CommandContext,
  announcer: Announcer,
  failure: FailureReport,
): Promise<void> {
  const { env, cwd, console, interrupts } = context
  const { nproc, nnodes } = given.placement
  const options = given.dryRun ? given : withFolders(given, cwd, env)
  const { program, output, restart } = options
  const isDetached = takeDetached(env)
  const script = findCode(program, cwd, env)
  failure.script = script.path
  // tsrun cannot know whether a program computes on GPUs.
  const wantsGpus = program.kind === 'program' || usesGpus(env)
  if (wantsGpus) gpus.check()
  const devices = findDevices(env, () => gpus.list)
  // A detached job writes its output only to the log files.
  const shown = isDetached ? { ...output, ranks: new Set<number>() } : output
  const job = createJob({ ...options, output: shown }, env, cwd, script, script, {
    ...devices,
    gpus: wantsGpus ? gpus.preferred : devices.gpus,
  })
  const origin = describeEnvironment(settings)
  if (options.dryRun) {
    if (origin !== undefined) console.write('stderr', `tsrun: ${origin}\n`)
    const plan = planAttempt(job, assumedPlace(job), 0, assumedSetup(job))
    console.print('stdout', describePlan(plan))
    return
  }
  if (options.detach && !isDetached) {
    const logs = output.directory ?? output.kept
    if (logs === undefined) {
      const reason = `output is not kept of more than ${MOST_KEPT} ranks, nor if TSRUN_KEEP_LOGS is 0 or its folder cannot be used`
      throw usageError(`--detach needs --log-dir DIR here: ${reason}`)
    }
    // The launcher in the background uses the folder that was created above.
    context.exitCode = await detach(logs, { ...env, TSRUN_LOG_DIR: output.directory }, context)
    return
  }
  if (settings['signals-to-handle']?.source !== 'default') interrupts.handle(restart.signals)
  const words = program.kind === 'program' ? [] : program.arguments
  for (const text of remarksOn(settings, words, env)) announcer.say('remark', text)
  // Several hosts agree on the run ID at the rendezvous, and announce it then.
  const run = nnodes === 1 ? `run ${job.identity.runId}: ` : ''
  if (origin !== undefined) announcer.say('settings', run + origin)
  const { directory, trace } = output
  if (given.output.directory === undefined && directory !== undefined) {
    announcer.say('log-dir', `${run}log files: ${directory}`, { directory })
  }
  const startedAt = performance.now()
  const events = openEventLog(output.eventLog, cwd, console, announcer)
  const input = context.stdin && distributeInput(context.stdin, program.stdin)
  const chaos = await openChaos(options, cwd, announcer, events)
  const { dashboard, metrics, onLine } = await openWatchers(output, job, context, announcer)
  let started: string | undefined
  const jobContext = {
    console,
    announcer,
    interrupts,
    events,
    chaos,
    onLine,
    input,
    watchers: [dashboard, metrics, failure, given.output.trace && traceReport(trace!)].filter(
      (watcher) => watcher !== undefined,
    ),
    remember: (runId: string) => {
      started = failure.runId = runId
      const end = recordRun(env, cwd, {
        runId,
        script: script.path,
        logDir: directory ?? output.kept,
      })
      if (isDetached) announceDetached(runId)
      return end
    },
  }
  const claimed = wantsGpus ? await gpus.claim(nproc) : undefined
  if (claimed?.warning !== undefined) announcer.say('gpus', claimed.warning)
  let exitCode = USAGE
  let error: unknown
  try {
    const placed = { ...job, devices: { ...job.devices, gpus: claimed?.gpus ?? job.devices.gpus } }
    exitCode = await runJob(placed, rendezvous, jobContext)
  } catch (thrown) {
    error = thrown
    if (isTsrError(error)) exitCode = exitCodeOfError(error)
    throw error
  } finally {
    claimed?.release()
    input?.close()
    if (given.output.trace !== undefined && trace !== undefined && started !== undefined) {
      await finishTrace(trace, started, cwd, announcer)
    }
    const seconds = Math.round(performance.now() - startedAt) / 1000
    events?.record('launcher-finished', { exitCode, seconds })
    await failure.send(exitCode, error)
    await Promise.all([dashboard?.end(exitCode), metrics?.end()])
    if (given.output.trace === undefined) removeTraceFolder(trace)
  }
  context.exitCode = exitCode
}

async function openChaos(
  { program: { chaos, kind }, placement: { nproc, nnodes } }: JobOptions,
  cwd: string,
  announcer: Announcer,
  events: EventLog | undefined,
): Promise<Chaos | undefined> {
  if (chaos === undefined) return undefined
  // Load the fault injection only when needed, so that other jobs start faster.
  const { createChaos } = await import('../job/chaos/chaos.ts')
  const { readChaosPlan } = await import('../job/chaos/plan-file.ts')
  return createChaos(
    readChaosPlan(chaos, cwd, { isProgram: kind === 'program', size: nproc * nnodes }),
    announcer,
    events,
  )
}

/**
 * Adds the folders of traces and logs. Without `--log-dir`, logs go to the folder of the last jobs, or to a
 * new temporary folder if options need log files or profiles.
 */
function withFolders(options: JobOptions, cwd: string, env: NodeJS.ProcessEnv): JobOptions {
  const { program, output } = options
  const trace = openTraceFolder(output, cwd)
  const isNeeded = needsFiles(output) || program.profiles.length > 0
  const directory =
    output.directory ?? (isNeeded ? mkdtempSync(join(tmpdir(), 'tsrun-logs-')) : undefined)
  if (directory !== undefined) return { ...options, output: { ...output, trace, directory } }
  const { nproc } = options.placement
  // Divide by 4: for each of two attempts, a rank keeps the current log files and the rotated ones.
  const logMaxSize = KEPT_BYTES / 4 / nproc
  const kept = nproc > MOST_KEPT ? undefined : keptLogs(env)
  return { ...options, output: { ...output, trace, kept, logMaxSize } }
}

function findCode({ kind, script }: ProgramOptions, cwd: string, env: NodeJS.ProcessEnv): Script {
  if (kind === 'module') return findModule(script, cwd)
  if (kind === 'program') return findProgram(script, cwd, env)
  return findScript(script, cwd, nearestCommand(script))
}

function nearestCommand(script: string): string | undefined {
  if (/[./\\]/.test(script)) return undefined
  const name = nearestName(script, commandNames)
  return name === undefined ? undefined : `tsrun ${name}`
}
