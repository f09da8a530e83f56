import type { Job } from '../job.ts'
import { planAlone, type NodePlan } from './node-plan.ts'
import type { Nodes } from './nodes.ts'
import { judge } from './verdict.ts'

/** The only node of a job: there is nobody to agree with. */
export function createAlone(
  job: Job,
  master: NodePlan['master'],
  close: () => Promise<void>,
): Nodes {
  const plan = planAlone(job, master)
  const never = new AbortController().signal
  return {
    plan,
    begin: (restartCount) => ({
      halt: never,
      fail: () => undefined,
      conclude: (report) => {
        const { maxRestarts } = job.options
        const evidence = { plan, reports: [report], lost: [], restartCount, maxRestarts }
        return Promise.resolve(judge(evidence))
      },
    }),
    close,
  }
}
