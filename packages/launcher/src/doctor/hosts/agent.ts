import { lookup } from 'node:dns/promises'
import { readFileSync } from 'node:fs'
import { hostname, networkInterfaces } from 'node:os'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import {
  anything,
  choice,
  count,
  object,
  parseJson,
  parsePortRange,
  text,
  where,
  type Of,
} from '@tsrun/core'
import { isAvailable } from '@tsrun/native'
import { addressOfInterface, localAddressTowards } from '@tsrun/store'
import { version } from '../../package.ts'
import { softLimit } from '../../job/placement/limits.ts'
import { attempt, readCores, trySharedMemory } from '../machine.ts'
import { answerLinks, measureLink, type LinkOptions } from './link.ts'

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
