import { randomBytes } from 'node:crypto'
import { messageOf, parseJson } from '@tsrun/core'
import {
  commandIn,
  lastLineOf,
  openConnection,
  type Reach,
  type RemoteHost,
  whyNotOn,
} from '@tsrun/launcher/host'
import {
  type HostFacts,
  type Link,
  type Questions,
  reply,
  type Reply,
  SECRET_BYTES,
} from './agent.ts'

export interface SurveyRequest {
  readonly hosts: readonly RemoteHost[]
  readonly reach: Reach
  /** The port of the job's store. */
  readonly port: number
  /** Ports of the ranks, for example `29600-29699`; default: any. */
  readonly portRange: string | undefined
  readonly iface: string | undefined
  /** Stops the measurements and the agents on the hosts. */
  readonly signal: AbortSignal
}

/** The facts about a host, or why they could not be collected. */
export type HostFinding = { readonly name: string } & (
  { readonly facts: HostFacts } | { readonly problem: string }
)

/** The measurement from host `from` to host `to` (indexes), or why it failed. */
export type LinkFinding = { readonly from: number; readonly to: number } & (
  | { readonly link: Link }
  | {
      readonly problem: string
      /** The tried address of the rank, for example `10.0.0.2:29600`. */
      readonly at: string
    }
)

export type Survey = Awaited<ReturnType<typeof surveyHosts>>

/** Milliseconds for a connection or an answer between hosts. */
const LIMIT = 5000
/** Milliseconds for an agent to answer a question. */
const LONGEST = 60_000

interface Asked {
  readonly index: number
  readonly agent: Agent
  readonly address: string
  readonly port: number
}

/** Surveys all hosts and the connections between them. A host takes part in one measurement at a time. */
export async function surveyHosts(request: SurveyRequest) {
  const secret = randomBytes(SECRET_BYTES).toString('hex')
  const agents: Agent[] = []
  const end = (): void => {
    for (const agent of agents) agent.close()
  }
  request.signal.addEventListener('abort', end)
  try {
    const found = await Promise.all(
      request.hosts.map(async (host): Promise<Found> => {
        const { name } = host
        const obstacle = await whyNotOn(host, request.reach)
        if (obstacle !== undefined) return { finding: { name, problem: obstacle.problem } }
        const agent = startAgent(host, request.reach, secret)
        agents.push(agent)
        try {
          const first = request.hosts[0]!.name
          const { port, iface, portRange: ports } = request
          const facts = await agent.ask('facts', { first, port, iface })
          return { finding: { name, facts }, agent, port: await agent.ask('listen', { ports }) }
        } catch (error) {
          return { finding: { name, problem: messageOf(error) } }
        }
      }),
    )
    const asked = placesOf(found)
    const store = await tryStore(asked, request)
    const links: LinkFinding[] = []
    for (const pairs of rounds(asked)) {
      const [there, back] = [pairs, pairs.map(([a, b]) => [b, a] as const)]
      for (const ways of [there, back]) {
        links.push(...(await Promise.all(ways.map(([from, to]) => measure(from, to)))))
      }
    }
    return {
      /** The port of the job's store. */
      port: request.port,
      hosts: found.map(({ finding }) => finding),
      /** The measurements between all hosts whose agents answered, in both directions. */
      links: links.toSorted((a, b) => a.from - b.from || a.to - b.to),
      /** For each host, why the host cannot reach the store; undefined if it can, or if this is unknown. */
      store: found.map((_, index) => store.get(index)),
    }
  } finally {
    end()
  }
}

interface Found {
  readonly finding: HostFinding
  readonly agent?: Agent
  /** The port at which the agent listens. */
  readonly port?: number
}

/** The hosts that other hosts can reach. */
function placesOf(found: readonly Found[]): Asked[] {
  // If the first host knows only its loopback address, use an address that the other hosts know.
  const known = found.flatMap(({ finding }, index) =>
    index > 0 && 'facts' in finding ? [finding.facts.first] : [],
  )
  return found.flatMap(({ finding, agent, port }, index): Asked[] => {
    if (!('facts' in finding) || agent === undefined || port === undefined) return []
    const own = finding.facts.address
    const address =
      index === 0 && own?.startsWith('127.') === true && known[0] !== undefined ? known[0] : own
    return address === undefined ? [] : [{ index, agent, address, port }]
  })
}

/** Tests whether the other hosts reach a server on the first host, at the port of the store. */
async function tryStore(
  asked: readonly Asked[],
  { hosts, port }: SurveyRequest,
): Promise<ReadonlyMap<number, string>> {
  const problems = new Map<number, string>()
  const [first, ...others] = asked
  if (first?.index !== 0) return problems
  try {
    await first.agent.ask('listen', { ports: String(port) })
  } catch (error) {
    problems.set(0, messageOf(error))
    return problems
  }
  const host = hosts[0]!.name
  await Promise.all(
    others.map(async ({ index, agent }) => {
      try {
        await agent.ask('measure', { host, port, limit: LIMIT, hasBandwidth: false })
      } catch (error) {
        problems.set(index, messageOf(error))
      }
    }),
  )
  return problems
}

/** Yields all pairs in rounds, as in a tournament. A host has at most one partner in each round. */
export function* rounds<T>(all: readonly T[]): Generator<(readonly [T, T])[]> {
  const seats: (T | undefined)[] = all.length % 2 === 0 ? [...all] : [...all, undefined]
  for (let round = 1; round < seats.length; round++) {
    const pairs: (readonly [T, T])[] = []
    for (let i = 0; i < seats.length / 2; i++) {
      const [a, b] = [seats[i], seats[seats.length - 1 - i]]
      if (a !== undefined && b !== undefined) pairs.push([a, b])
    }
    yield pairs
    // Keep the first seat, and rotate the others by one.
    seats.splice(1, 0, seats.pop())
  }
}

async function measure(from: Asked, { index: to, address, port }: Asked): Promise<LinkFinding> {
  const pair = { from: from.index, to }
  const ask = { host: address, port, limit: LIMIT, hasBandwidth: true }
  try {
    return { ...pair, link: await from.agent.ask('measure', ask) }
  } catch (error) {
    return { ...pair, problem: messageOf(error), at: `${address}:${port}` }
  }
}

type Agent = ReturnType<typeof startAgent>

/** Starts the process of `tsrun doctor --answer` on a host. */
function startAgent(host: RemoteHost, reach: Reach, secret: string) {
  const waiting = new Map<number, (reply: Reply) => void>()
  let asked = 0
  let rest = ''
  let errors = ''
  let end: string | undefined
  const read = (text: string): void => {
    const lines = (rest + text).split('\n')
    rest = lines.pop()!
    for (const line of lines) {
      // Skip greetings that the shell of the host may print.
      if (!line.startsWith('{"id":')) continue
      const answer = parseJson(line, reply)
      if (answer !== undefined) waiting.get(answer.id)?.(answer)
    }
  }
  // Begin with `echo`: a start-up file of the shell may have printed an incomplete line.
  const command = commandIn(reach.cwd, 'echo && exec npx --no -- tsrun doctor --answer')
  const connection = openConnection(host, command, reach, (stream, text) => {
    if (stream === 'stderr') errors = (errors + text).slice(-2000)
    else read(text)
  })
  void connection.ended.then(({ code }) => {
    end = lastLineOf(errors) ?? `the connection has ended (exit code ${code})`
    for (const [id, answer] of waiting) answer({ id, problem: end })
  })
  connection.send(secret)
  return {
    /** @throws an Error that says why there is no answer */
    async ask<Name extends keyof Questions>(
      name: Name,
      ask: Parameters<Questions[Name]>[0],
    ): Promise<Awaited<ReturnType<Questions[Name]>>> {
      if (end !== undefined) throw new Error(end)
      const id = asked++
      const { problem, value } = await new Promise<Reply>((resolve) => {
        const late = setTimeout(() => {
          resolve({ id, problem: `no answer within ${LONGEST / 1000} s` })
        }, LONGEST)
        waiting.set(id, (answer) => {
          clearTimeout(late)
          resolve(answer)
        })
        connection.send(JSON.stringify({ id, do: name, ask }))
      })
      waiting.delete(id)
      if (problem !== undefined) throw new Error(problem)
      return value as Awaited<ReturnType<Questions[Name]>>
    },
    close(): void {
      connection.close()
    },
  }
}
