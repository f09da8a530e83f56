import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createLogger } from '@tsrun/core'
import type { RankStatus } from '@tsrun/telemetry'
import type { JobOptions } from '../args/job-options.ts'
import type { RankProcess } from '../processes/rank-process.ts'
import { stacksText } from '../report/stacks-text.ts'

/**
 * Tells the JavaScript stacks of the ranks of this host during one attempt: at `path`, to whoever of this
 * user connects (`tsrun stacks`), and to the launcher itself.
 */
export class StackDesk {
  /** A Unix socket in a folder of this user; undefined where that is not possible. */
  readonly path: string | undefined
  /** The states of the ranks, by rank. */
  readStatus: () => readonly RankStatus[] = () => []
  readonly #kind: JobOptions['kind']
  readonly #server: Server
  readonly #ranks: RankProcess[] = []
  readonly #remove: () => void

  private constructor(kind: JobOptions['kind'], server: Server, folder: string | undefined) {
    this.#kind = kind
    this.#server = server
    this.path = folder === undefined ? undefined : socketIn(folder)
    this.#remove = () => {
      if (folder !== undefined) rmSync(folder, { recursive: true, force: true })
    }
    // A launcher that ends early, by an error for example, leaves no folder behind.
    process.once('exit', this.#remove)
    server.on('connection', (socket) => {
      socket.on('error', () => undefined)
      void this.text().then((text) => socket.end(text))
    })
  }

  /** Where no socket can be made, the job runs without one. */
  static async open({ kind }: Pick<JobOptions, 'kind'>): Promise<StackDesk> {
    const server = createServer()
    let folder: string | undefined
    try {
      // Only this user may enter it.
      folder = mkdtempSync(join(tmpdir(), 'tsrun-'))
      await once(server.listen(socketIn(folder)), 'listening')
      server.unref()
    } catch (error) {
      createLogger('launcher').info({ reason: (error as Error).message }, 'no socket for stacks')
      if (folder !== undefined) rmSync(folder, { recursive: true, force: true })
      folder = undefined
    }
    return new StackDesk(kind, server, folder)
  }

  add(rank: RankProcess): void {
    this.#ranks.push(rank)
  }

  /** The stacks of all ranks, which are asked at the same time; at most 1.5 seconds later. */
  async text(): Promise<string> {
    const ranks = this.#ranks.filter(({ end }) => end === undefined)
    const isNode = this.#kind !== 'program'
    const reports = await Promise.all(
      ranks.map(async (rank) => ({
        rank: rank.rank,
        pid: rank.pid,
        isNode,
        report: isNode ? await rank.stack() : undefined,
      })),
    )
    return stacksText(reports, this.readStatus())
  }

  close(): void {
    process.off('exit', this.#remove)
    this.#server.close()
    this.#remove()
  }
}

function socketIn(folder: string): string {
  return join(folder, 'stacks')
}
