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
import { attempt, readCores, readOpenFiles, trySharedMemory } from '../machine.ts'
import { answerLinks, measureLink, type Link, type LinkOptions } from './link.ts'

/** The facts about a host for `tsrun doctor --hosts`. */
export interface HostFacts {
  /** The name that the host reports for itself. */
  readonly hostname: string
  readonly version: string
  readonly node: string
  /** Address at which other hosts reach the ranks of this host; undefined if there is a `problem`. */
  readonly address: string | undefined
  readonly problem: string | undefined
  /** The address to which this host resolves the name of the first host. */
  readonly first: string | undefined
  readonly interfaces: readonly HostInterface[]
  readonly cores: number
  /** Why the ranks of this host cannot share memory; undefined if they can. */
  readonly sharing: string | undefined
  /** Free bytes of /dev/shm; undefined if it is missing. */
  readonly shm: number | undefined
  readonly openFiles: number | undefined
}

export interface HostInterface {
  readonly name: string
  readonly address: string
  /** The largest packet in bytes; undefined if the system does not say. */
  readonly mtu: number | undefined
}

/** The requests to an agent, and their answers. */
export interface Questions {
  /** `first` is the name of the host with the store, and `port` is the port of the store. */
  facts: (ask: { first: string; port: number; iface: string | undefined }) => Promise<HostFacts>
  /** Listens on any port, or on a port of a range such as `29600-29699`. Returns the port. */
  listen: (ask: { ports: string | undefined }) => Promise<number>
  measure: (ask: Omit<LinkOptions, 'secret'>) => Promise<Link>
}

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

function answersWith(secret: Buffer): Questions {
  return {
    facts: gather,
    listen: async ({ ports }) => {
      const { port } = await answerLinks(
        secret,
        ports === undefined ? undefined : parsePortRange(ports),
      )
      return port
    },
    measure: (ask) => measureLink({ ...ask, secret }),
  }
}

async function gather({
  first,
  port,
  iface,
}: Parameters<Questions['facts']>[0]): Promise<HostFacts> {
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
    hostname: hostname(),
    version,
    node: process.version,
    ...{ address, problem },
    first: await lookup(first).then(
      (found) => found.address,
      () => undefined,
    ),
    interfaces: listInterfaces(),
    cores: readCores().allowed,
    sharing: koffi.available ? sharing : koffi.reason,
    shm: free,
    openFiles: readOpenFiles(),
  }
}

function listInterfaces(): HostInterface[] {
  return Object.entries(networkInterfaces()).flatMap(([name, of = []]) =>
    of
      // Link-local addresses (fe80::) are only valid with the name of an interface.
      .filter(({ internal, scopeid }) => !internal && (scopeid ?? 0) === 0)
      .map(({ address }) => ({
        name,
        address,
        mtu: attempt(() => Number(readFileSync(`/sys/class/net/${name}/mtu`, 'latin1'))),
      })),
  )
}
