import { toOutput } from './output-options.ts'
import { countRanks, toPlacement, type Capacity } from './placement-options.ts'
import { toProgram } from './program-options.ts'
import { toProtection } from './protection-options.ts'
import { usageError } from './readers.ts'
import { readConf, toRendezvous, withoutOthers } from './rendezvous-options.ts'
import { readSettings, type Settings } from './settings.ts'

/** The options of a job, checked and complete. */
export type JobOptions = ReturnType<typeof toJobOptions>

/**
 * Reads the settings.
 *
 * @param command - the script and its arguments
 * @throws ERR_TSR_USAGE
 */
export function toJobOptions(given: Settings, command: readonly string[], capacity: Capacity) {
  const settings = withoutOthers(given)
  checkOnlyChoices(settings)
  const values = readSettings(settings)
  const nproc = countRanks(values, settings, capacity)
  const conf = readConf(settings)
  return {
    program: toProgram(values, settings, command, nproc),
    placement: toPlacement(values, settings, nproc, conf.has('is_host')),
    rendezvous: toRendezvous(values, settings, conf),
    protection: toProtection(values),
    output: toOutput(values, settings),
    /** When ranks are restarted, and how they are stopped. */
    restart: {
      maxRestarts: values['max-restarts'],
      /** Milliseconds between SIGTERM and SIGKILL. */
      grace: values.grace,
      /** The signals that stop the job. */
      signals: values['signals-to-handle'],
      /** Milliseconds after which the job is ended. */
      jobTimeout: values['job-timeout'],
      /** A command or a URL for a failed job. */
      onFailure: values['on-failure'],
    },
    dryRun: values['dry-run'],
    detach: values.detach,
  }
}

/**
 * Checks that the ranks named by options exist, once the size of the job is known.
 *
 * @throws ERR_TSR_USAGE
 */
export function checkRanks(
  { program, output }: Pick<JobOptions, 'program' | 'output'>,
  worldSize: number,
): void {
  const ranks = [...(output.ranks ?? [])]
  const highest = ranks.reduce((most, rank) => Math.max(most, rank), -Infinity)
  const named = { ranks: highest, 'inspect-rank': program.inspect?.rank, stdin: program.stdin }
  for (const [flag, rank] of Object.entries(named)) {
    if (typeof rank !== 'number' || rank < worldSize) continue
    const range = worldSize === 1 ? 'only rank 0' : `ranks 0 to ${worldSize - 1}`
    throw usageError(`--${flag} names rank ${rank}, but this job has ${range}`)
  }
}

/** Checks flags for which tsrun accepts fewer values than torchrun. */
function checkOnlyChoices(settings: Settings): void {
  const backend = settings['rdzv-backend']
  if (backend?.value.startsWith('etcd') === true) {
    throw usageError(
      `${backend.source} is ${backend.value}: use c10d, as hosts need no service beside the store of node 0`,
    )
  }
  const only = [
    ['start-method', 'spawn', 'each rank is a process of its own'],
    ['logs-specs', 'default', '--log-dir, --redirects and --tee say where output goes'],
  ] as const
  for (const [name, value, instead] of only) {
    const setting = settings[name]
    if (setting === undefined || setting.value === value) continue
    throw usageError(`${setting.source} is ${setting.value}; tsrun has only ${value}: ${instead}`)
  }
}
