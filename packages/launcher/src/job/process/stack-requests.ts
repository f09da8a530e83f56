import { randomBytes, timingSafeEqual } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { PendingConnections } from '@tsrun/core'
import type { RankStatus } from '@tsrun/distributed/record'
import type { ProgramOptions } from '../../args/job-options.ts'
import { logProblem } from '../../logs/log.ts'
import type { RankProcess } from './rank-process.ts'
import { stacksText } from './stacks-text.ts'
import { computingShare, useOf } from './rank-use.ts'

/** Milliseconds within which a client has to send the secret. */
const PROOF_TIME = 2000
/** Milliseconds over which the CPU time of the ranks is measured before their stacks are requested. */
const MEASURED = 250
/** Maximum number of unauthenticated connections. */
const MOST_PENDING = 64

export type StackRequests = Awaited<ReturnType<typeof openStackRequests>>

/**
 * Returns the JavaScript stacks of the ranks of this host during one attempt, to the launcher itself and
 * to clients of a Unix socket (`tsrun stacks`). The socket is abstract, so a crash leaves no file. Every
 * user can connect to it, but only this user can read the secret, which is in the status page. If the
 * socket cannot be opened, the job runs without it.
 */
export async function openStackRequests({ kind }: ProgramOptions) {
  const name = `tsrun-${process.pid}-${randomBytes(8).toString('hex')}`
  const secret = randomBytes(32).toString('hex')
  const pending = new PendingConnections<Socket>({
    limit: MOST_PENDING,
    drop: (socket) => {
      socket.destroy()
    },
  })

  const serve = async (socket: Socket): Promise<void> => {
    socket.on('error', () => undefined).on('close', () => pending.delete(socket))
    pending.add(socket, '')
    const limit = setTimeout(() => socket.destroy(), PROOF_TIME)
    const expected = Buffer.from(secret)
    let given = Buffer.alloc(0)
    for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
      given = Buffer.concat([given, chunk as Buffer])
      if (given.length >= expected.length) break
    }
    clearTimeout(limit)
    pending.delete(socket)
    const isKnown = given.length === expected.length && timingSafeEqual(given, expected)
    if (isKnown) socket.end(await requests.text())
    else socket.destroy()
  }

  const server = createServer({ allowHalfOpen: true }, (socket) => {
    serve(socket).catch(() => socket.destroy())
  }).unref()
  const requests = {
    /** The ranks of this host. */
    ranks: [] as readonly RankProcess[],
    /** The states of the ranks. */
    readStatus: (): readonly RankStatus[] => [],
    /** The name of the socket and the secret, for the status page; undefined if there is no socket. */
    address: undefined as string | undefined,
    /** Requests the stacks of all ranks at the same time. Takes about 2 seconds at most. */
    async text(): Promise<string> {
      const uses = new Map(requests.readStatus().map((status) => [status.rank, useOf(status)]))
      await pause(MEASURED)
      const isNode = kind !== 'program'
      const stacks = await Promise.all(
        requests.ranks
          .filter(({ fate }) => fate !== 'ended')
          .map(async (process) => ({
            rank: process.rank,
            pid: process.pid,
            isNode,
            fate: process.fate,
            report: isNode ? await process.stack() : undefined,
          })),
      )
      const states = requests.readStatus().map((status) => ({
        ...status,
        computing: computingShare(uses.get(status.rank), useOf(status)),
      }))
      return stacksText(stacks, states)
    },
    close(): void {
      server.close()
    },
  }
  try {
    await once(server.listen(`\0${name}`), 'listening')
    requests.address = `${name} ${secret}`
  } catch (error) {
    logProblem(error, 'no socket for stacks')
  }
  return requests
}
