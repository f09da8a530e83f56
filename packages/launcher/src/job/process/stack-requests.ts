import { randomBytes, timingSafeEqual } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type Server, type Socket } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { PendingConnections } from '@tsrun/core'
import type { RankStatus } from '@tsrun/distributed/record'
import type { ProgramOptions } from '../../args/program-options.ts'
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

/**
 * Returns the JavaScript stacks of the ranks of this host during one attempt, to the launcher itself and
 * to clients of a Unix socket (`tsrun stacks`). The socket is abstract, so a crash leaves no file. Every
 * user can connect to it, but only this user can read the secret, which is in the status page.
 */
export class StackRequests {
  /** The states of the ranks. */
  readStatus: () => readonly RankStatus[] = () => []
  readonly #kind: ProgramOptions['kind']
  readonly #server: Server
  readonly #name = `tsrun-${process.pid}-${randomBytes(8).toString('hex')}`
  readonly #secret = randomBytes(32).toString('hex')
  readonly #ranks: RankProcess[] = []
  readonly #pending = new PendingConnections<Socket>({
    limit: MOST_PENDING,
    drop: (socket) => {
      socket.destroy()
    },
  })

  private constructor(kind: ProgramOptions['kind'], server: Server) {
    this.#kind = kind
    this.#server = server
    server.on('connection', (socket) => {
      this.#serve(socket).catch(() => socket.destroy())
    })
  }

  /** If the socket cannot be opened, the job runs without one. */
  static async open({ kind }: Pick<ProgramOptions, 'kind'>): Promise<StackRequests> {
    const server = createServer({ allowHalfOpen: true }).unref()
    const requests = new StackRequests(kind, server)
    try {
      await once(server.listen(`\0${requests.#name}`), 'listening')
    } catch (error) {
      logProblem(error, 'no socket for stacks')
    }
    return requests
  }

  /** The name of the socket and the secret, for the status page; undefined if there is no socket. */
  get address(): string | undefined {
    return this.#server.listening ? `${this.#name} ${this.#secret}` : undefined
  }

  add(rank: RankProcess): void {
    this.#ranks.push(rank)
  }

  /** Requests the stacks of all ranks at the same time. Takes about 2 seconds at most. */
  async text(): Promise<string> {
    const uses = new Map(this.readStatus().map((status) => [status.rank, useOf(status)]))
    await pause(MEASURED)
    const ranks = this.#ranks.filter(({ fate }) => fate !== 'ended')
    const isNode = this.#kind !== 'program'
    const stacks = await Promise.all(
      ranks.map(async (process) => ({
        rank: process.rank,
        pid: process.pid,
        isNode,
        fate: process.fate,
        report: isNode ? await process.stack() : undefined,
      })),
    )
    const states = this.readStatus().map((status) => ({
      ...status,
      computing: computingShare(uses.get(status.rank), useOf(status)),
    }))
    return stacksText(stacks, states)
  }

  close(): void {
    this.#server.close()
  }

  async #serve(socket: Socket): Promise<void> {
    socket.on('error', () => undefined).on('close', () => this.#pending.delete(socket))
    this.#pending.add(socket, '')
    const limit = setTimeout(() => socket.destroy(), PROOF_TIME)
    const expected = Buffer.from(this.#secret)
    let given = Buffer.alloc(0)
    for await (const chunk of socket.iterator({ destroyOnReturn: false })) {
      given = Buffer.concat([given, chunk as Buffer])
      if (given.length >= expected.length) break
    }
    clearTimeout(limit)
    this.#pending.delete(socket)
    const isKnown = given.length === expected.length && timingSafeEqual(given, expected)
    if (isKnown) socket.end(await this.text())
    else socket.destroy()
  }
}
