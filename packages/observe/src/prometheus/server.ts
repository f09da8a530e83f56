import { isIPv6 } from 'node:net'
import { openHttpServer, type HttpServer } from '../http-server.ts'
import { EXPOSITION_TYPE } from './exposition.ts'

const PATH = '/metrics'
const MOST_CONNECTIONS = 64

/** Options of `MetricsServer`. */
export interface MetricsServerOptions {
  /** Name or address to listen at. */
  readonly host: string
  /** 0: any free port. */
  readonly port: number
  /** Returns the current metrics as text. */
  readonly read: () => string
}

/** Answers requests for `/metrics` with the current metrics. Does no work between requests. */
export class MetricsServer {
  readonly #server: HttpServer

  private constructor(server: HttpServer) {
    this.#server = server
  }

  /** @throws the system's error if the address or port cannot be used */
  static async open({ host, port, read }: MetricsServerOptions): Promise<MetricsServer> {
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
    return new MetricsServer(server)
  }

  get url(): string {
    const { address, port } = this.#server.address
    return `http://${isIPv6(address) ? `[${address}]` : address}:${port}${PATH}`
  }

  async close(): Promise<void> {
    await this.#server.close(0)
  }
}

function isLoopback(address: string): boolean {
  return address === '::1' || address.startsWith('127.')
}

function isLoopbackName(host: string): boolean {
  const name = host.replace(/:\d+$/, '')
  return name === 'localhost' || name === '[::1]' || /^127(\.\d{1,3}){3}$/.test(name)
}
