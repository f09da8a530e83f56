import { hostname } from 'node:os'
import { monotonicNow } from '@tsrun/core'
import type { RankStatus } from '@tsrun/distributed/record'
import type { AttemptFacts, ObserveHost } from '../host.ts'
import { expositionText } from './exposition.ts'
import { jobMetrics } from './rank-metrics.ts'
import { MetricsServer } from './server.ts'

/** Options of `JobMetrics`. */
export interface MetricsOptions {
  /** Name or address to listen at. */
  readonly host: string
  /** 0: any free port. */
  readonly port: number
  readonly script: string
}

/** Prometheus metrics of a job, read from its ranks on this host at each request. */
export class JobMetrics {
  readonly #script: string
  readonly #host: ObserveHost
  #server!: MetricsServer
  #attempt: AttemptFacts | undefined
  #readRanks: () => readonly RankStatus[] = () => []

  private constructor(script: string, host: ObserveHost) {
    this.#script = script
    this.#host = host
  }

  /** Starts the server and announces its address. @throws the system's error if it fails to listen */
  static async open({ host, port, script }: MetricsOptions, to: ObserveHost): Promise<JobMetrics> {
    const metrics = new JobMetrics(script, to)
    const read = (): string => metrics.#text()
    metrics.#server = await MetricsServer.open({ host, port, read })
    const { url } = metrics.#server
    to.say('metrics', `metrics: ${url}`, { url })
    return metrics
  }

  /** Switches to this attempt. */
  follow(attempt: AttemptFacts, readRanks: () => readonly RankStatus[]): void {
    this.#attempt = attempt
    this.#readRanks = readRanks
  }

  async end(): Promise<void> {
    await this.#server.close()
  }

  #text(): string {
    const { runId = '', restartCount = 0, worldSize } = this.#attempt ?? {}
    const ranks = this.#readRanks()
      .map((status) => ({
        ...status,
        cpuSeconds: this.#host.cpuSeconds(status.pid),
        residentBytes: this.#host.residentBytes(status.pid),
      }))
      .sort((a, b) => a.rank - b.rank)
    const job = { runId, script: this.#script, host: hostname(), worldSize, restartCount, ranks }
    return expositionText(jobMetrics(job, monotonicNow()))
  }
}
