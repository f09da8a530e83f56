import { randomBytes, timingSafeEqual } from 'node:crypto'
import { readFileSync } from 'node:fs'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { openHttpServer, type Exchange } from '../http-server.ts'
import { packageFolder } from '../package-folder.ts'
import type { PageSource } from './views.ts'

/** Milliseconds between updates while a page is open, and while none is open. */
const INTERVAL = 100
const IDLE_INTERVAL = 1000
/** Maximum open pages; more are rejected. */
const MOST_PAGES = 16

const files: ReadonlyMap<string, readonly [file: string, type: string]> = new Map([
  ['/', ['dashboard.html', 'text/html; charset=utf-8']],
  ['/dashboard.js', ['dashboard.js', 'text/javascript; charset=utf-8']],
  ['/dashboard.css', ['dashboard.css', 'text/css; charset=utf-8']],
])

interface OpenPage {
  readonly response: ServerResponse
  /** Whether the page needs a snapshot, because it is new or was too slow for an update. */
  isBehind: boolean
}

/**
 * Serves the page of a job on loopback to clients that know the token of its URL, and updates it by
 * server-sent events. A slow page skips updates, so its backlog is bounded.
 *
 * @param port - 0: any free port
 * @throws the system's error if the port cannot be used
 */
export async function serveDashboard(port: number, feed: PageSource) {
  const token = randomBytes(16).toString('hex')
  const pages = new Set<OpenPage>()
  let timer: NodeJS.Timeout | undefined
  let isClosed = false

  const sendUpdate = () => {
    if (isClosed) return
    clearTimeout(timer)
    const update = feed.update(pages.size > 0)
    let text: string | undefined
    for (const page of pages) {
      if (page.response.writableNeedDrain) page.isBehind = true
      else if (page.isBehind) {
        page.isBehind = false
        page.response.write(eventText('snapshot', feed.snapshot(update)))
      } else page.response.write((text ??= eventText('update', update)))
    }
    if (!feed.isLive) return
    timer = setTimeout(sendUpdate, pages.size > 0 ? INTERVAL : IDLE_INTERVAL).unref()
  }

  const stream = ({ request, response, send }: Exchange) => {
    if (pages.size >= MOST_PAGES) {
      send(503, `${MOST_PAGES} pages are open\n`)
      return
    }
    response.writeHead(200, { 'Content-Type': 'text/event-stream' })
    if (request.method === 'HEAD') {
      response.end()
      return
    }
    const page = { response, isBehind: true }
    pages.add(page)
    response.on('error', () => undefined).on('close', () => pages.delete(page))
    sendUpdate()
  }

  const isToken = (given: string) => {
    const [a, b] = [Buffer.from(given), Buffer.from(token)]
    return a.length === b.length && timingSafeEqual(a, b)
  }

  const server = await openHttpServer('127.0.0.1', port, (exchange) => {
    const { request, send, admit } = exchange
    // URL would parse a path that begins with `//` as another host.
    const [pathname = '', query] = (request.url ?? '').split('?', 2)
    const searchParams = new URLSearchParams(query)
    const given = searchParams.get('token')
    const cookie = `tsrun-dashboard-${server.address.port}`
    const isEntry = given !== null && isToken(given)
    if (!isEntry && !isToken(cookieOf(request, cookie))) {
      send(403, 'Open the address that tsrun has printed: it ends with the token.\n')
      return
    }
    admit()
    if (isEntry) {
      // Redirect, so that the token disappears from the address bar and the history.
      const value = `${cookie}=${token}; HttpOnly; SameSite=Strict; Path=/`
      send(303, '', { 'Set-Cookie': value, Location: '/' })
    } else if (pathname === '/events') {
      stream(exchange)
    } else if (pathname === '/step' && feed.step !== undefined) {
      const step = feed.step(Number(searchParams.get('number') ?? NaN))
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
  })
  sendUpdate()
  return {
    /** The address of the page, including the token. */
    url: `http://127.0.0.1:${server.address.port}/?token=${token}`,
    /** Sends the last changes and closes the server. */
    close: async () => {
      if (isClosed) return
      sendUpdate()
      isClosed = true
      clearTimeout(timer)
      for (const { response } of pages) response.end()
      await server.close(200)
    },
  }
}

function eventText(event: string, data: unknown) {
  return `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`
}

function cookieOf({ headers }: IncomingMessage, name: string) {
  const pairs = (headers.cookie ?? '').split(';').map((pair) => pair.trim())
  return pairs.find((pair) => pair.startsWith(`${name}=`))?.slice(name.length + 1) ?? ''
}
