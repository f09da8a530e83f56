import { hostname } from 'node:os'
import { monotonicNow } from '@tsrun/core'
import { expositionText, jobMetrics, MetricsServer } from '@tsrun/telemetry'
import type { RankStatus } from '@tsrun/distributed/record'
import type { MetricsOptions } from '../args/output-options.ts'
import { usageError } from '../args/read-setting.ts'
import type { AttemptFacts, JobWatcher } from '../job/job.ts'
import type { Announcer } from '../logs/console.ts'
import { cpuSeconds, residentBytes } from '../processes/process-use.ts'

/** The metrics of a job for Prometheus: reads what its ranks on this host do when it is asked. */
export class JobMetrics implements JobWatcher {
  readonly #script: string
  #server: MetricsServer | undefined
  #attempt: AttemptFacts | undefined
  #readRanks: () => readonly RankStatus[] = () => []

  private constructor(script: string) {
    this.#script = script
  }

  /** Opens it and announces its address. @throws ERR_TSR_USAGE when it cannot listen there */
  static async open(
    { host, port, source }: MetricsOptions,
    script: string,
    announcer: Announcer,
  ): Promise<JobMetrics> {
    const metrics = new JobMetrics(script)
    const read = (): string => metrics.#text()
    try {
      metrics.#server = await MetricsServer.open({ host, port, read })
    } catch (cause) {
      throw usageError(`${source}: ${(cause as Error).message}`, cause)
    }
    const { url } = metrics.#server
    announcer.say('metrics', `metrics: ${url}`, { url })
    return metrics
  }

  follow(attempt: AttemptFacts, readRanks: () => readonly RankStatus[]): void {
    this.#attempt = attempt
    this.#readRanks = readRanks
  }

  async end(): Promise<void> {
    await this.#server?.close()
  }

  #text(): string {
    const { runId = '', restartCount = 0, worldSize } = this.#attempt ?? {}
    const ranks = this.#readRanks()
      .map((status) => ({
        ...status,
        cpuSeconds: cpuSeconds(status.pid),
        residentBytes: residentBytes(status.pid),
      }))
      .sort((a, b) => a.rank - b.rank)
    const job = { runId, script: this.#script, host: hostname(), worldSize, restartCount, ranks }
    return expositionText(jobMetrics(job, monotonicNow()))
  }
}
