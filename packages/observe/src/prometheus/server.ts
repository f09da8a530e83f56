import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { isIPv6, type AddressInfo } from 'node:net'
import { HttpConnections, httpOptions } from '../http-connections.ts'
import { EXPOSITION_TYPE } from './exposition.ts'

const PATH = '/metrics'
const MOST_CONNECTIONS = 64

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
  readonly #read: () => string
  readonly #server: Server
  readonly #connections: HttpConnections
  #address: AddressInfo | undefined

  private constructor({ read }: MetricsServerOptions) {
    this.#read = read
    this.#server = createServer(httpOptions, (request, response) => {
      try {
        this.#serve(request, response)
      } catch (error) {
        // A failed request must never end a job.
        if (!response.headersSent) response.writeHead(500)
        if (!response.writableEnded) response.end(`${(error as Error).message}\n`)
      }
    }).unref()
    // Pipelined requests would keep the launcher busy.
    this.#server.maxRequestsPerSocket = 1
    this.#connections = new HttpConnections(this.#server, MOST_CONNECTIONS)
  }

  /** @throws the system's error if it cannot listen there */
  static async open(options: MetricsServerOptions): Promise<MetricsServer> {
    const metrics = new MetricsServer(options)
    const { host, port } = options
    await once(metrics.#server.listen(port, host), 'listening')
    metrics.#address = metrics.#server.address() as AddressInfo
    return metrics
  }

  get url(): string {
    const { address, port } = this.#address!
    return `http://${isIPv6(address) ? `[${address}]` : address}:${port}${PATH}`
  }

  async close(): Promise<void> {
    const closed = once(this.#server, 'close')
    this.#server.close()
    this.#server.closeAllConnections()
    await closed
  }

  #serve(request: IncomingMessage, response: ServerResponse): void {
    const { method, url = '', headers } = request
    this.#connections.advance(request, 'asked')
    const send = (status: number, text: string, more: Record<string, string> = {}): void => {
      const type = { 'Content-Type': 'text/plain; charset=utf-8' }
      const length = { 'Content-Length': String(Buffer.byteLength(text)) }
      response.writeHead(status, { ...type, ...length, 'Cache-Control': 'no-store', ...more })
      response.end(method === 'HEAD' ? undefined : text)
    }
    // On loopback, reject DNS rebinding: pages of other sites must not reach it through their name.
    if (isLoopback(this.#address!.address) && !isLoopbackName(headers.host)) {
      send(421, 'not a name of this server\n')
    } else if (method !== 'GET' && method !== 'HEAD') {
      send(405, 'only GET\n', { Allow: 'GET, HEAD' })
    } else if (url.split('?', 1)[0] !== PATH) {
      send(404, `The metrics are at ${PATH}.\n`)
    } else send(200, this.#read(), { 'Content-Type': EXPOSITION_TYPE })
  }
}

function isLoopback(address: string): boolean {
  return address === '::1' || address.startsWith('127.')
}

function isLoopbackName(host = ''): boolean {
  const name = host.replace(/:\d+$/, '')
  return name === 'localhost' || name === '[::1]' || /^127(\.\d{1,3}){3}$/.test(name)
}
