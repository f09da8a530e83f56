import { timingSafeEqual } from 'node:crypto'
import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import type { PortRange } from '@tsrun/core'

/** Bytes of the secret that a client must send first. */
export const SECRET_BYTES = 32
/** Message types: a request for the other host's time, or bytes to receive. */
const [PING, STREAM] = [1, 2]
const HEADER = 9
const ANSWER = 8
/** Milliseconds for a client to send the secret. */
const PATIENCE = 5000

/** Measurements from one host to another. */
export type Link = Awaited<ReturnType<typeof measureLink>>

/** Wall-clock time in milliseconds, with fractions. */
const clock = (): number => performance.timeOrigin + performance.now()

/**
 * Serves the measurements of other hosts, at all addresses of this host.
 *
 * @param ports - the range in which the first free port is used; default: any port
 * @returns the server, whose connections end with the process
 * @throws the error of the last port, for example EADDRINUSE
 */
export async function answerLinks(secret: Buffer, ports: PortRange = { first: 0, last: 0 }) {
  for (let port = ports.first; ; port++) {
    const server = createServer({ noDelay: true }, (socket) => {
      serve(socket, secret)
    })
    try {
      // Without an address, Node listens on IPv6 and IPv4, or only on IPv4 if there is no IPv6.
      server.listen(port)
      await once(server, 'listening')
      return { server, port: (server.address() as AddressInfo).port }
    } catch (error) {
      if (port >= ports.last) throw error
    }
  }
}

function serve(socket: Socket, secret: Buffer): void {
  let rest: Buffer = Buffer.alloc(0)
  let isKnown = false
  let toTake = 0
  socket.setTimeout(PATIENCE, () => socket.destroy())
  socket.on('error', () => undefined)
  // Count the received bytes, and discard them.
  const take = (bytes: number): void => {
    toTake -= bytes
    if (toTake === 0) socket.write(doubleOf(clock()))
    if (toTake < 0) socket.destroy()
  }
  socket.on('data', (chunk) => {
    if (toTake > 0) {
      take(chunk.length)
      return
    }
    rest = Buffer.concat([rest, chunk])
    if (!isKnown) {
      if (rest.length < SECRET_BYTES) return
      isKnown = timingSafeEqual(rest.subarray(0, SECRET_BYTES), secret)
      if (!isKnown) {
        socket.destroy()
        return
      }
      rest = rest.subarray(SECRET_BYTES)
    }
    if (rest.length < HEADER) return
    const [kind, value] = [rest[0], rest.readDoubleLE(1)]
    const more = rest.subarray(HEADER)
    rest = Buffer.alloc(0)
    if (kind === PING) {
      socket.write(doubleOf(clock()))
      return
    }
    toTake = value
    take(more.length)
  })
}

function doubleOf(value: number): Buffer {
  const bytes = Buffer.alloc(ANSWER)
  bytes.writeDoubleLE(value)
  return bytes
}

const ROUND_TRIPS = 200
/** Round trips before the measurement, so that V8 compiles the code first. */
const WARM_UP = 50
/** Target duration of the bandwidth measurement in milliseconds. */
const STREAMED = 300
const MOST_BYTES = 512 * 2 ** 20
const FIRST_BYTES = 2 ** 20
const CHUNK = Buffer.alloc(256 * 1024)

export interface LinkOptions {
  readonly host: string
  readonly port: number
  readonly secret: Buffer
  /** Time limit in milliseconds for connecting, and for each answer. */
  readonly limit: number
  readonly hasBandwidth: boolean
}

/** Measures the link to a host. @throws an Error that says what went wrong */
export async function measureLink(options: LinkOptions) {
  const { host, port, secret, limit, hasBandwidth } = options
  const start = performance.now()
  const socket = connect({ host, port, noDelay: true })
  const answers = answersOn(socket, limit)
  try {
    await answers.connected()
    const connected = performance.now() - start
    socket.write(secret)
    const trips = await measureRoundTrips(socket, answers)
    const shortest = trips.reduce((best, trip) => (trip.time < best.time ? trip : best))
    const times = trips.map(({ time }) => time).sort((a, b) => a - b)
    return {
      /** Milliseconds to connect. */
      connect: connected,
      /** Median of the round trips of a few bytes, in milliseconds. */
      roundTrip: times[times.length >> 1]!,
      /** Milliseconds that the other host's clock is ahead of this one. */
      ahead: shortest.ahead,
      /** Error bound of `ahead` in milliseconds: half of the shortest round trip. */
      doubt: shortest.time / 2,
      /** Bytes per second of one connection; undefined if not measured. */
      bandwidth: hasBandwidth ? await measureBandwidth(socket, answers) : undefined,
    }
  } finally {
    socket.destroy()
  }
}

async function measureRoundTrips(socket: Socket, answers: Answers) {
  const header = Buffer.alloc(HEADER)
  header[0] = PING
  const trips: { readonly time: number; readonly ahead: number }[] = []
  for (let i = 0; i < WARM_UP + ROUND_TRIPS; i++) {
    const [sent, from] = [clock(), performance.now()]
    socket.write(header)
    const theirs = (await answers.next()).readDoubleLE()
    const time = performance.now() - from
    if (i >= WARM_UP) trips.push({ time, ahead: theirs - (sent + time / 2) })
  }
  return trips
}

async function measureBandwidth(socket: Socket, answers: Answers): Promise<number> {
  const first = await stream(socket, answers, FIRST_BYTES)
  const wanted = (FIRST_BYTES / first) * STREAMED
  const chunks = Math.ceil(Math.min(Math.max(wanted, FIRST_BYTES), MOST_BYTES) / CHUNK.length)
  const bytes = chunks * CHUNK.length
  return (bytes / (await stream(socket, answers, bytes))) * 1000
}

/** @returns milliseconds until the other host has received `bytes`, a multiple of a chunk */
async function stream(socket: Socket, answers: Answers, bytes: number): Promise<number> {
  const header = Buffer.alloc(HEADER)
  header[0] = STREAM
  header.writeDoubleLE(bytes, 1)
  const start = performance.now()
  socket.write(header)
  for (let sent = 0; sent < bytes; sent += CHUNK.length) {
    if (!socket.write(CHUNK)) await answers.drained()
  }
  await answers.next()
  return performance.now() - start
}

type Answers = ReturnType<typeof answersOn>

function answersOn(socket: Socket, limit: number) {
  let rest: Buffer = Buffer.alloc(0)
  let wake = (): void => undefined
  let problem: Error | undefined
  const fail = (error: Error): void => {
    problem ??= error
    wake()
  }
  socket
    .on('data', (chunk) => {
      rest = Buffer.concat([rest, chunk])
      wake()
    })
    .on('connect', () => {
      wake()
    })
    .on('drain', () => {
      wake()
    })
    .on('error', fail)
    .on('close', () => {
      fail(new Error('the connection was closed'))
    })
  const until = async (isThere: () => boolean): Promise<void> => {
    const timer = setTimeout(() => {
      fail(new Error(`no answer within ${limit / 1000} s`))
    }, limit)
    try {
      for (;;) {
        if (problem !== undefined) throw problem
        if (isThere()) return
        await new Promise<void>((resolve) => (wake = resolve))
      }
    } finally {
      clearTimeout(timer)
    }
  }
  return {
    connected: () => until(() => !socket.connecting),
    drained: () => until(() => !socket.writableNeedDrain),
    async next(): Promise<Buffer> {
      await until(() => rest.length >= ANSWER)
      const answer = rest.subarray(0, ANSWER)
      rest = rest.subarray(ANSWER)
      return answer
    },
  }
}
