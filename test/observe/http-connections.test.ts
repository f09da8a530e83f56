import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { serveDashboard, serveMetrics } from '../internals/observe.ts'

interface OpenServer {
  readonly port: number
  readonly close: () => Promise<void>
}

async function answerOf(socket: Socket): Promise<string> {
  let answer = ''
  socket.setEncoding('latin1').on('data', (text: string) => (answer += text))
  socket.on('error', () => undefined)
  await new Promise((resolve) => socket.once('close', resolve))
  return answer
}

const feed = { isLive: false, update: () => ({}), snapshot: () => ({}) }

// Each waits for the time-out of a silent connection, so that they run side by side.
it.concurrent.each<[string, () => Promise<OpenServer>]>([
  [
    'metrics',
    async () => {
      const { url, close } = await serveMetrics('127.0.0.1', 0, () => 'x 1\n')
      return { port: Number(new URL(url).port), close }
    },
  ],
  [
    'the dashboard',
    async () => {
      const { url, close } = await serveDashboard(0, feed as never)
      return { port: Number(new URL(url).port), close }
    },
  ],
])(
  'the server of %s answers during a flood of silent connections, and closes them',
  async (_, open) => {
    const server = await open()
    const ends: Promise<string>[] = []
    for (let i = 0; i < 600; i++) {
      const socket = connect({ port: server.port, host: '127.0.0.1' })
      ends.push(answerOf(socket))
      if (i % 100 === 99) {
        await once(socket, 'connect')
        const { status } = await fetch(`http://127.0.0.1:${String(server.port)}/metrics`)
        expect([200, 403]).toContain(status)
      }
    }
    // Connections beyond the limit are closed without an answer. The others wait for the time-out.
    const answers = await Promise.all(ends)
    const late = answers.filter((answer) => answer !== '')
    expect(answers.length - late.length).toBeGreaterThan(100)
    expect(late.length).toBeGreaterThan(0)
    for (const answer of late) expect(answer).toMatch(/^HTTP\/1\.1 408 Request Timeout\r\n/)
    await server.close()
  },
  30_000,
)

it.concurrent(
  'the metrics server answers only one request of a connection that sends many at once',
  async () => {
    let reads = 0
    const read = (): string => `x ${(reads += 1)}\n`
    const server = await serveMetrics('127.0.0.1', 0, read)
    const { port, host } = new URL(server.url)
    const socket = connect({ port: Number(port), host: '127.0.0.1' })
    let answer = ''
    socket.setEncoding('utf8').on('data', (text: string) => (answer += text))
    socket.write(`GET /metrics HTTP/1.1\r\nHost: ${host}\r\n\r\n`.repeat(500))
    await once(socket, 'close')
    expect(reads).toBe(1)
    expect(answer).toMatch(/^HTTP\/1\.1 200 OK\r\n/)
    expect(answer).toContain('\r\n\r\nx 1\n')
    await server.close()
  },
)

it('the dashboard answers HEAD for its events without keeping the connection of a page', async () => {
  const server = await serveDashboard(0, feed as never)
  const { headers } = await fetch(server.url, { redirect: 'manual' })
  const cookie = headers.get('set-cookie')!.split(';', 1)[0]!
  const events = new URL('/events', server.url)
  const answer = await fetch(events, { method: 'HEAD', headers: { cookie } })
  expect([answer.status, answer.headers.get('content-type')]).toEqual([200, 'text/event-stream'])
  await server.close()
})
