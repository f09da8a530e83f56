import { isIPv6 } from 'node:net'
import { hostname } from 'node:os'
import { monotonicNow } from '@tsrun/core'
import type { RankStatus } from '@tsrun/distributed/record'
import type { AttemptFacts, ObserveHost } from '../host.ts'
import { openHttpServer } from '../http-server.ts'
import { EXPOSITION_TYPE, expositionText } from './exposition.ts'
import { jobMetrics } from './rank-metrics.ts'

const PATH = '/metrics'
const MOST_CONNECTIONS = 64

/** Options of `openJobMetrics`. */
export interface MetricsOptions {
  /** Name or address to listen at. */
  readonly host: string
  /** 0: any free port. */
  readonly port: number
  readonly script: string
}

/**
 * Serves Prometheus metrics of a job, read from its ranks on this host at each request, and announces
 * the address.
 *
 * @throws the system's error if it fails to listen
 */
export async function openJobMetrics({ host, port, script }: MetricsOptions, to: ObserveHost) {
  let attempt: Partial<AttemptFacts> = {}
  let readRanks: () => readonly RankStatus[] = () => []
  const { url, close } = await serveMetrics(host, port, () => {
    const { runId = '', restartCount = 0, worldSize } = attempt
    const ranks = readRanks()
      .map((status) => ({
        ...status,
        cpuSeconds: to.cpuSeconds(status.pid),
        residentBytes: to.residentBytes(status.pid),
      }))
      .sort((a, b) => a.rank - b.rank)
    const job = { runId, script, host: hostname(), worldSize, restartCount, ranks }
    return expositionText(jobMetrics(job, monotonicNow()))
  })
  to.say('metrics', `metrics: ${url}`, { url })
  return {
    /** Switches to this attempt. */
    follow(next: AttemptFacts, read: () => readonly RankStatus[]): void {
      attempt = next
      readRanks = read
    },
    end: close,
  }
}

/**
 * Answers requests for `/metrics` with the text of `read`. Does no work between requests.
 *
 * @throws the system's error if the address or port cannot be used
 */
export async function serveMetrics(host: string, port: number, read: () => string) {
  const server = await openHttpServer({
    host,
    port,
    limit: MOST_CONNECTIONS,
    headers: { 'Cache-Control': 'no-store' },
    // Pipelined requests would keep the launcher busy.
    requests: 1,
    // On a loopback address, reject other host names (DNS rebinding).
    isOwnName: (name, { address }) => !isLoopback(address) || isLoopbackName(name),
    answer: ({ request: { url = '' }, send }) => {
      if (url.split('?', 1)[0] === PATH) send(200, read(), { 'Content-Type': EXPOSITION_TYPE })
      else send(404, `The metrics are at ${PATH}.\n`)
    },
  })
  const { address, port: own } = server.address
  return {
    url: `http://${isIPv6(address) ? `[${address}]` : address}:${own}${PATH}`,
    close: () => server.close(0),
  }
}

function isLoopback(address: string): boolean {
  return address === '::1' || address.startsWith('127.')
}

function isLoopbackName(host: string): boolean {
  const name = host.replace(/:\d+$/, '')
  return name === 'localhost' || name === '[::1]' || /^127(\.\d{1,3}){3}$/.test(name)
}
