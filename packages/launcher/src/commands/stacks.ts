import { connect } from 'node:net'
import { text } from 'node:stream/consumers'
import type { StatusSnapshot } from '@tsrun/distributed/record'
import { declareCommand } from './context.ts'
import { NO_JOB, ONE_JOB, runningJobs } from './running-jobs.ts'

/** Milliseconds for a launcher to answer. A launcher waits 2 seconds for its ranks. */
const ANSWER_TIME = 5000

/** `tsrun stacks [run-id]` */
export const command = declareCommand({
  usage:
    '$0 stacks [run-id]\n\nShows the JavaScript stack of each rank of the jobs that you run on this host, and ' +
    'its operation. The ranks keep running; they need not have been started with --inspect.',
  argument: ONE_JOB,
  flags: {},
  run: async (_, { console }, [runId]) => {
    const blocks = await Promise.all(runningJobs('stacks', runId).map(jobStacks))
    console.print('stdout', blocks.length === 0 ? NO_JOB : blocks.join('\n'))
  },
})

async function jobStacks(job: StatusSnapshot): Promise<string> {
  const { runId, script, launcherPid } = job
  const title = `${runId}  ${script} (tsrun ${launcherPid})\n`
  return title + (await askLauncher(job))
}

async function askLauncher({ socket, launcherPid }: StatusSnapshot): Promise<string> {
  if (socket === undefined) return `tsrun ${launcherPid} has no socket at which it could answer\n`
  const [name, secret] = socket.split(' ') as [string, string]
  // The leading zero byte denotes an abstract socket, which has no file.
  const connection = connect(`\0${name}`)
  connection.setTimeout(ANSWER_TIME, () => {
    connection.destroy(new Error(`no answer within ${ANSWER_TIME / 1000} s`))
  })
  try {
    connection.end(secret)
    return await text(connection)
  } catch (error) {
    return `tsrun ${launcherPid} does not answer: ${(error as Error).message}\n`
  }
}
