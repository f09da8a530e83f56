import { timingSafeEqual } from 'node:crypto'
import { lookup } from 'node:dns/promises'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { hostname, networkInterfaces } from 'node:os'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import {
  anything,
  choice,
  count,
  object,
  type Of,
  parseJson,
  parsePortRange,
  type PortRange,
  text,
  where,
} from '@tsrun/core'
import { softLimit, version } from '@tsrun/launcher/host'
import { isAvailable } from '@tsrun/native'
import { addressOfInterface, localAddressTowards } from '@tsrun/store'
import { attempt, readCores, trySharedMemory } from '../host/machine.ts'

/** The facts about a host for `tsrun doctor --hosts`. */
export type HostFacts = Awaited<ReturnType<typeof gather>>

/** The requests to an agent, and their answers. */
export type Questions = ReturnType<typeof answersWith>

const question = object({
  id: count(),
  do: choice('facts', 'listen', 'measure'),
  ask: where<never>(() => true, 'anything'),
})

export const reply = object({
  id: count(),
  value: anything(),
  problem: text.optional(),
})

export type Reply = Of<typeof reply>

/**
 * Answers the questions of `tsrun doctor --hosts`, which arrive as lines of JSON. The first line is the
 * secret that authenticates measurements between hosts.
 *
 * @returns once the input has ended
 */
export async function answerQuestions(
  input: Readable,
  write: (text: string) => void,
): Promise<void> {
  let questions: Questions | undefined
  for await (const line of createInterface({ input })) {
    if (questions === undefined) {
      questions = answersWith(Buffer.from(line, 'hex'))
      continue
    }
    const asked = parseJson(line, question)
    if (asked === undefined) throw new Error('a question of another version of tsrun')
    const { id, do: name, ask } = asked
    void questions[name](ask).then(
      (value) => {
        write(`${JSON.stringify({ id, value } satisfies Reply)}\n`)
      },
      (error: unknown) => {
        write(`${JSON.stringify({ id, problem: reasonOf(error) } satisfies Reply)}\n`)
      },
    )
  }
}

function reasonOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException
  const reasons: Record<string, string> = {
    ECONNREFUSED: 'connection refused',
    EHOSTUNREACH: 'no route to the host',
    ENETUNREACH: 'no route to the network',
    ETIMEDOUT: 'no answer',
    ENOTFOUND: 'the name is not known',
    EADDRINUSE: 'the port is in use',
  }
  return reasons[code ?? ''] ?? message
}

function answersWith(secret: Buffer) {
  return {
    facts: gather,
    /** Listens on any port, or on a port of a range such as `29600-29699`. Returns the port. */
    listen: async ({ ports }: { readonly ports: string | undefined }) => {
      const { port } = await answerLinks(
        secret,
        ports === undefined ? undefined : parsePortRange(ports),
      )
      return port
    },
    measure: (ask: Omit<LinkOptions, 'secret'>) => measureLink({ ...ask, secret }),
  }
}

/** @param ask - the name of the host with the store, the port of the store, and `--iface` */
async function gather(ask: {
  readonly first: string
  readonly port: number
  readonly iface: string | undefined
}) {
  const { first, port, iface } = ask
  const { problem: sharing, free } = await trySharedMemory()
  const koffi = isAvailable()
  let [address, problem]: (string | undefined)[] = []
  try {
    address =
      iface === undefined ? await localAddressTowards(first, port) : addressOfInterface(iface)
  } catch (error) {
    problem = reasonOf(error)
  }
  return {
    /** The name that the host reports for itself. */
    hostname: hostname(),
    version,
    node: process.version,
    /** Address at which other hosts reach the ranks of this host; undefined if there is a `problem`. */
    address,
    problem,
    /** The address to which this host resolves the name of the first host. */
    first: await lookup(first).then(
      (found) => found.address,
      () => undefined,
    ),
    interfaces: listInterfaces(),
    cores: readCores().allowed,
    /** Why the ranks of this host cannot share memory; undefined if they can. */
    sharing: koffi.available ? sharing : koffi.reason,
    /** Free bytes of /dev/shm; undefined if it is missing. */
    shm: free,
    openFiles: softLimit('Max open files'),
  }
}

function listInterfaces() {
  return Object.entries(networkInterfaces()).flatMap(([name, of = []]) =>
    of
      // Link-local addresses (fe80::) are only valid with the name of an interface.
      .filter(({ internal, scopeid }) => !internal && (scopeid ?? 0) === 0)
      .map(({ address }) => ({
        name,
        address,
        /** The largest packet in bytes; undefined if the system does not say. */
        mtu: attempt(() => Number(readFileSync(`/sys/class/net/${name}/mtu`, 'latin1'))),
      })),
  )
}

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
