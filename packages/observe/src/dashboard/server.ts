import { randomBytes, timingSafeEqual } from 'node:crypto'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { HttpConnections, httpOptions } from '../http-connections.ts'
import { packageFolder } from '../package-folder.ts'
import type { PageSource } from './views.ts'

/** Milliseconds between updates while a page is open, and while none is open. */
const INTERVAL = 100
const IDLE_INTERVAL = 1000
/** Maximum open pages; more are rejected. */
const MOST_PAGES = 16
const MOST_CONNECTIONS = 128

const files: ReadonlyMap<string, readonly [file: string, type: string]> = new Map([
  ['/', ['dashboard.html', 'text/html; charset=utf-8']],
  ['/dashboard.js', ['dashboard.js', 'text/javascript; charset=utf-8']],
  ['/dashboard.css', ['dashboard.css', 'text/css; charset=utf-8']],
])

const securityHeaders = {
  'Content-Security-Policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; " +
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Cache-Control': 'no-store',
}

export interface DashboardServerOptions {
  /** 0: any free port. */
  readonly port: number
  readonly feed: PageSource
}

interface OpenPage {
  readonly response: ServerResponse
  /**
   * True if it needs the whole state, because it has received nothing yet or was too slow for an
   * update.
   */
  isBehind: boolean
}

/**
 * Serves the page of a job on loopback to clients that know the token of its URL, and updates it by
 * server-sent events. A slow page skips updates, so its backlog is bounded.
 */
export class DashboardServer {
  readonly #feed: PageSource
  readonly #token = randomBytes(16).toString('hex')
  readonly #server: Server
  readonly #connections: HttpConnections
  readonly #pages = new Set<OpenPage>()
  #port = 0
  #timer: NodeJS.Timeout | undefined
  #isClosed = false

  private constructor({ feed }: DashboardServerOptions) {
    this.#feed = feed
    this.#server = createServer(httpOptions, (request, response) => {
      try {
        this.#serve(request, response)
      } catch (error) {
        // A failed request must never end a job, for example if a file is missing.
        if (!response.headersSent) response.writeHead(500, securityHeaders)
        if (!response.writableEnded) response.end(`${(error as Error).message}\n`)
      }
    }).unref()
    this.#connections = new HttpConnections(this.#server, MOST_CONNECTIONS)
  }

  /** @throws the system's error if it cannot listen at the port */
  static async open(options: DashboardServerOptions): Promise<DashboardServer> {
    const dashboard = new DashboardServer(options)
    await once(dashboard.#server.listen(options.port, '127.0.0.1'), 'listening')
    dashboard.#port = (dashboard.#server.address() as AddressInfo).port
    dashboard.#update()
    return dashboard
  }

  get port(): number {
    return this.#port
  }

  /** Includes the token. */
  get url(): string {
    return `http://127.0.0.1:${this.port}/?token=${this.#token}`
  }

  /** Sends the last changes and closes the server. */
  async close(): Promise<void> {
    if (this.#isClosed) return
    this.#update()
    this.#isClosed = true
    clearTimeout(this.#timer)
    for (const { response } of this.#pages) response.end()
    const closed = once(this.#server, 'close')
    this.#server.close()
    this.#server.closeIdleConnections()
    // Drop pages that have not read everything by then.
    const limit = setTimeout(() => {
      this.#server.closeAllConnections()
    }, 200)
    await closed
    clearTimeout(limit)
  }

  readonly #update = (): void => {
    if (this.#isClosed) return
    clearTimeout(this.#timer)
    const update = this.#feed.update(this.#pages.size > 0)
    let text: string | undefined
    for (const page of this.#pages) {
      if (page.response.writableNeedDrain) page.isBehind = true
      else if (page.isBehind) {
        page.isBehind = false
        page.response.write(eventText('snapshot', this.#feed.snapshot(update)))
      } else page.response.write((text ??= eventText('update', update)))
    }
    if (!this.#feed.isLive) return
    const interval = this.#pages.size > 0 ? INTERVAL : IDLE_INTERVAL
    this.#timer = setTimeout(this.#update, interval).unref()
  }

  #serve(request: IncomingMessage, response: ServerResponse): void {
    this.#connections.advance(request, 'asked')
    const send = (status: number, text: string, headers: Record<string, string> = {}): void => {
      const type = { 'Content-Type': 'text/plain; charset=utf-8' }
      response.writeHead(status, { ...securityHeaders, ...type, ...headers })
      response.end(request.method === 'HEAD' ? undefined : text)
    }
    // Reject DNS rebinding: a name that resolves to 127.0.0.1 gives another site the origin of the
    // page.
    const hosts = [`127.0.0.1:${this.port}`, `localhost:${this.port}`]
    if (!hosts.includes(request.headers.host ?? '')) {
      send(421, 'not a name of this server\n')
      return
    }
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      send(405, 'only GET\n', { Allow: 'GET, HEAD' })
      return
    }
    // URL would parse a path that begins with `//` as another host.
    const [pathname = '', query] = (request.url ?? '').split('?', 2)
    const searchParams = new URLSearchParams(query)
    const given = searchParams.get('token')
    const cookie = `tsrun-dashboard-${this.port}`
    const isEntry = given !== null && this.#isToken(given)
    if (!isEntry && !this.#isToken(cookieOf(request, cookie))) {
      send(403, 'Open the address that tsrun has printed: it ends with the token.\n')
      return
    }
    this.#connections.advance(request, 'known')
    if (isEntry) {
      // Redirect, so that the token disappears from the address bar and the history.
      const value = `${cookie}=${this.#token}; HttpOnly; SameSite=Strict; Path=/`
      send(303, '', { 'Set-Cookie': value, Location: '/' })
    } else if (pathname === '/events') {
      this.#stream(request, response, send)
    } else if (pathname === '/step' && this.#feed.step !== undefined) {
      const place = {
        index: numberOf(searchParams, 'index'),
        number: numberOf(searchParams, 'number'),
      }
      const step = this.#feed.step(place)
      if (step === undefined) send(404, 'no such step\n')
      else send(200, JSON.stringify(step), { 'Content-Type': 'application/json' })
    } else {
      const [file, type] = files.get(pathname) ?? []
      if (file === undefined) send(404, 'not found\n')
      else
        send(200, readFileSync(new URL(`dist/${file}`, packageFolder), 'utf8'), {
          'Content-Type': type!,
        })
    }
  }

  #stream(
    request: IncomingMessage,
    response: ServerResponse,
    send: (status: number, text: string) => void,
  ): void {
    if (this.#pages.size >= MOST_PAGES) {
      send(503, `${MOST_PAGES} pages are open\n`)
      return
    }
    response.writeHead(200, { ...securityHeaders, 'Content-Type': 'text/event-stream' })
    if (request.method === 'HEAD') {
      response.end()
      return
    }
    const page = { response, isBehind: true }
    this.#pages.add(page)
    response.on('error', () => undefined).on('close', () => this.#pages.delete(page))
    this.#update()
  }

  #isToken(given: string): boolean {
    const [a, b] = [Buffer.from(given), Buffer.from(this.#token)]
    return a.length === b.length && timingSafeEqual(a, b)
  }
}

/** Undefined unless it is a non-negative integer. */
function numberOf(parameters: URLSearchParams, name: string): number | undefined {
  const text = parameters.get(name) ?? ''
  return /^\d{1,15}$/.test(text) ? Number(text) : undefined
}

function eventText(event: string, data: unknown): string {
  return `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`
}

function cookieOf({ headers }: IncomingMessage, name: string): string {
  const pairs = (headers.cookie ?? '').split(';').map((pair) => pair.trim())
  return pairs.find((pair) => pair.startsWith(`${name}=`))?.slice(name.length + 1) ?? ''
}
