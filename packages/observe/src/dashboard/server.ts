import { randomBytes, timingSafeEqual } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { openHttpServer, type HttpOptions, type HttpServer, type Send } from '../http-server.ts'
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

/** Options of `DashboardServer`. */
export interface DashboardServerOptions {
  /** 0: any free port. */
  readonly port: number
  readonly feed: PageSource
}

interface OpenPage {
  readonly response: ServerResponse
  /** Whether the page needs a snapshot, because it is new or was too slow for an update. */
  isBehind: boolean
}

/**
 * Serves the page of a job on loopback to clients that know the token of its URL, and updates it by
 * server-sent events. A slow page skips updates, so its backlog is bounded.
 */
export class DashboardServer {
  readonly #feed: PageSource
  readonly #token = randomBytes(16).toString('hex')
  readonly #pages = new Set<OpenPage>()
  #server!: HttpServer
  #timer: NodeJS.Timeout | undefined
  #isClosed = false

  private constructor(feed: PageSource) {
    this.#feed = feed
  }

  /** @throws the system's error if the port cannot be used */
  static async open({ port, feed }: DashboardServerOptions): Promise<DashboardServer> {
    const dashboard = new DashboardServer(feed)
    dashboard.#server = await openHttpServer({
      host: '127.0.0.1',
      port,
      limit: MOST_CONNECTIONS,
      requests: 0,
      headers: securityHeaders,
      // Reject other host names, even if they resolve to 127.0.0.1 (DNS rebinding).
      isOwnName: (name, { port: own }) => [`127.0.0.1:${own}`, `localhost:${own}`].includes(name),
      answer: dashboard.#answer,
    })
    dashboard.#update()
    return dashboard
  }

  get port(): number {
    return this.#server.address.port
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
    await this.#server.close(200)
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

  readonly #answer: HttpOptions['answer'] = ({ request, response, send, admit }) => {
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
    admit()
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
      else {
        const text = readFileSync(new URL(`dist/${file}`, packageFolder), 'utf8')
        send(200, text, { 'Content-Type': type! })
      }
    }
  }

  #stream(request: IncomingMessage, response: ServerResponse, send: Send): void {
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

/** Reads a non-negative integer; undefined for any other text. */
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
