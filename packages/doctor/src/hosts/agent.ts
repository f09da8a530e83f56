import { timingSafeEqual } from 'node:crypto'
import { lookup } from 'node:dns/promises'
import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import {
  anything,
  choice,
  codeOf,
  count,
  messageOf,
  object,
  type Of,
  parseJson,
  parsePortRange,
  type PortRange,
  text,
  where,
} from '@tsrun/core'
import { softLimit } from '@tsrun/launcher/host'
import { isAvailable } from '@tsrun/native'
import { addressOfInterface, localAddressTowards } from '@tsrun/store'
import { readCores, trySharedMemory } from '../host/machine.ts'

export type HostFacts = Awaited<ReturnType<typeof gather>>

/** The requests that an agent answers: a function for each kind of request. */
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
 * Answers the questions of `tsrun doctor --hosts`, which arrive as lines of JSON, until the input
 * ends. The first line is the secret that authenticates measurements between hosts.
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
        // If a name has several addresses, the error has no message, only a code.
        const problem = messageOf(error) || codeOf(error)
        write(`${JSON.stringify({ id, problem } satisfies Reply)}\n`)
      },
    )
  }
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
    problem = messageOf(error)
  }
  return {
    node: process.version,
    /** Address at which other hosts reach the ranks of this host; undefined if there is a `problem`. */
    address,
    problem,
    /** The address to which this host resolves the name of the first host. */
    first: await lookup(first).then(
      (found) => found.address,
      () => undefined,
    ),
    cores: readCores().allowed,
    /** Why the ranks of this host cannot share memory; undefined if they can. */
    sharing: koffi.available ? sharing : koffi.reason,
    /** Free bytes of /dev/shm; undefined if it is missing. */
    shm: free,
    openFiles: softLimit('Max open files'),
  }
}

/** Bytes of the secret that a client must send first. */
export const SECRET_BYTES = 32
/** Bytes of a number: the size before a message, or the time in the answer. */
const WORD = 8
/** Milliseconds for a client to send the secret. */
const PATIENCE = 5000

export type Link = Awaited<ReturnType<typeof measureLink>>

/** Wall-clock time in milliseconds, with fractions. */
const clock = (): number => performance.timeOrigin + performance.now()

/**
 * Serves the measurements of other hosts, at all addresses of this host.
 *
 * @param ports - default: any port
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
  // Count the received bytes, and discard them. After the last byte, answer with this host's time.
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
    if (rest.length < WORD) return
    toTake = rest.readDoubleLE()
    const more = rest.length - WORD
    rest = Buffer.alloc(0)
    take(more)
  })
}

function doubleOf(value: number): Buffer {
  const bytes = Buffer.alloc(WORD)
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
  const socket = connect({ host, port, noDelay: true })
  socket.on('error', () => undefined)
  socket.setTimeout(limit, () => {
    socket.destroy(new Error(`no answer within ${limit / 1000} s`))
  })
  const exchange = exchangesOn(socket)
  try {
    await once(socket, 'connect')
    socket.write(secret)
    for (let i = 0; i < WARM_UP; i++) await exchange(0)
    const trips: Awaited<ReturnType<typeof exchange>>[] = []
    for (let i = 0; i < ROUND_TRIPS; i++) trips.push(await exchange(0))
    trips.sort((a, b) => a.time - b.time)
    const [shortest] = trips
    return {
      /** Median of the round trips of a few bytes, in milliseconds. */
      roundTrip: trips[trips.length >> 1]!.time,
      /** Milliseconds by which the other host's clock is ahead of this host's clock. */
      ahead: shortest!.ahead,
      /** Error bound of `ahead` in milliseconds: half of the shortest round trip. */
      doubt: shortest!.time / 2,
      /** Bytes per second of one connection; undefined if not measured. */
      bandwidth: hasBandwidth ? await measureBandwidth(exchange) : undefined,
    }
  } finally {
    socket.destroy()
  }
}

type Exchange = ReturnType<typeof exchangesOn>

async function measureBandwidth(exchange: Exchange): Promise<number> {
  const first = await exchange(FIRST_BYTES)
  const wanted = (FIRST_BYTES / first.time) * STREAMED
  const chunks = Math.ceil(Math.min(Math.max(wanted, FIRST_BYTES), MOST_BYTES) / CHUNK.length)
  const bytes = chunks * CHUNK.length
  return (bytes / (await exchange(bytes)).time) * 1000
}

/** Returns a function that sends whole chunks, and waits until the other host has received them. */
function exchangesOn(socket: Socket) {
  const chunks: AsyncIterator<Buffer, undefined> = socket[Symbol.asyncIterator]()
  return async (bytes: number) => {
    const [sent, start] = [clock(), performance.now()]
    socket.write(doubleOf(bytes))
    for (let left = bytes; left > 0; left -= CHUNK.length) {
      if (!socket.write(CHUNK)) await once(socket, 'drain')
    }
    let answer: Buffer = Buffer.alloc(0)
    while (answer.length < WORD) {
      const { value } = await chunks.next()
      if (value === undefined) throw new Error('the connection was closed')
      answer = Buffer.concat([answer, value])
    }
    const time = performance.now() - start
    return { time, ahead: answer.readDoubleLE() - (sent + time / 2) }
  }
}
