import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { isIPv6, type AddressInfo } from 'node:net'
import { HttpConnections, httpOptions } from '../http-connections.ts'
import { EXPOSITION_TYPE } from './exposition.ts'

const PATH = '/metrics'
const MOST_CONNECTIONS = 64

export interface MetricsServerOptions {
  /** Where it listens, by name or address. */
  readonly host: string
  /** 0: any free port. */
  readonly port: number
  /** The text of the metrics as they are now. */
  readonly read: () => string
}

/** Answers each request for `/metrics` with the metrics of that moment. It does nothing in between. */
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
        // A question must never end a job.
        if (!response.headersSent) response.writeHead(500)
        if (!response.writableEnded) response.end(`${(error as Error).message}\n`)
      }
    }).unref()
    // Many requests sent at once would keep the launcher busy.
    this.#server.maxRequestsPerSocket = 1
    this.#connections = new HttpConnections(this.#server, MOST_CONNECTIONS)
  }

  /** @throws the error of the system when it cannot listen there */
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
    // On loopback, pages of other sites must not reach it by a name that leads to this host.
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
