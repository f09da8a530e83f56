import { randomBytes, timingSafeEqual } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type Server, type Socket } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { createLogger, PendingConnections } from '@tsrun/core'
import type { RankStatus } from '@tsrun/distributed/record'
import type { ProgramOptions } from '../args/program-options.ts'
import type { RankProcess } from '../processes/rank-process.ts'
import { stacksText } from '../report/stacks-text.ts'
import { computingShare, useOf } from '../processes/rank-use.ts'

/** Milliseconds that a client has to prove that it knows the secret. */
const PROOF_TIME = 2000
/** Milliseconds for which the CPU time of the ranks is measured before. */
const MEASURED = 250
/** Maximum connections that have not proven it. */
const MOST_PENDING = 64

/**
 * Tells the JavaScript stacks of the ranks of this host during one attempt: to the launcher itself, and at
 * a Unix socket (`tsrun stacks`). The socket is an abstract one, so no file is left however the launcher
 * ends. Every user can connect to it, but only this user can read the secret, which is in the status page.
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

  /** Where no socket can be made, the job runs without one. */
  static async open({ kind }: Pick<ProgramOptions, 'kind'>): Promise<StackRequests> {
    const server = createServer({ allowHalfOpen: true }).unref()
    const requests = new StackRequests(kind, server)
    try {
      await once(server.listen(`\0${requests.#name}`), 'listening')
    } catch (error) {
      createLogger('launcher').info({ reason: (error as Error).message }, 'no socket for stacks')
    }
    return requests
  }

  /** The name of the socket and the secret for the status page; undefined: there is no socket. */
  get address(): string | undefined {
    return this.#server.listening ? `${this.#name} ${this.#secret}` : undefined
  }

  add(rank: RankProcess): void {
    this.#ranks.push(rank)
  }

  /** The stacks of all ranks, which are asked at the same time; at most 2 seconds later. */
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
