import { randomBytes, timingSafeEqual } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type Socket } from 'node:net'
import { PendingConnections, formatRanks, formatSeconds, monotonicNow } from '@tsrun/core'
import { type RankStatus, activityOf, type RankFate } from '@tsrun/distributed/record'
import type { ProgramOptions } from '../../args/job-options.ts'
import { logProblem } from '../../logs/log.ts'
import type { RankProcess } from './rank-process.ts'
import type { StackReport } from '../../protocol/control.ts'

/** Milliseconds within which a client has to send the secret. */
const PROOF_TIME = 2000
/** Maximum number of unauthenticated connections. */
const MOST_PENDING = 64

/**
 * Returns the JavaScript stacks of the ranks of this host during one attempt, to the launcher itself and
 * to clients of a Unix socket (`tsrun stacks`). The socket is abstract, so a crash leaves no file. Every
 * user can connect to it, but only this user can read the secret, which is in the status page. If the
 * socket cannot be opened, the job runs without it.
 */
export async function openStackRequests({ kind }: ProgramOptions, ranks: readonly RankProcess[]) {
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
    readStatus: (): readonly RankStatus[] => [],
    /** The name of the socket and the secret, for the status page; undefined if there is no socket. */
    address: undefined as string | undefined,
    /** Requests the stacks of all ranks at the same time. Takes about 2 seconds at most. */
    async text(): Promise<string> {
      const isNode = kind !== 'program'
      const stacks = await Promise.all(
        ranks
          .filter(({ fate }) => fate !== 'ended')
          .map(async (process) => ({
            rank: process.rank,
            pid: process.pid,
            isNode,
            fate: process.fate,
            report: isNode ? await process.stack() : undefined,
          })),
      )
      return stacksText(stacks, requests.readStatus())
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

export interface RankStack {
  readonly rank: number
  readonly pid: number
  /** Programs of `--no-python` have no JavaScript stack. */
  readonly isNode: boolean
  /** How the rank ended; undefined while the rank runs. */
  readonly fate: RankFate | undefined
  /** Undefined if the rank did not answer. */
  readonly report: Pick<StackReport, 'stack'> | undefined
}

/** Formats stacks, each below the state and operation of its rank. Prints equal stacks only once. */
export function stacksText(stacks: readonly RankStack[], states: readonly RankStatus[]): string {
  if (stacks.length === 0) return 'no rank runs here now\n'
  const alike = new Map<string, string[]>()
  for (const stack of stacks) {
    const state = states.find(({ rank }) => rank === stack.rank)
    const what = state === undefined ? stack.fate : describeState(state)
    const title = `rank ${stack.rank} (pid ${stack.pid})${what === undefined ? '' : `: ${what}`}`
    const text = describeStack(stack)
      .map((line) => `    ${line}\n`)
      .join('')
    alike.set(text, [...(alike.get(text) ?? []), title])
  }
  return [...alike].map(([text, titles]) => `${titles.join('\n')}\n${text}`).join('')
}

function describeState(status: RankStatus): string {
  const { state, since, operation, sequence, group, waitsFor } = status
  const activity = activityOf(status)
  const time = formatSeconds(Math.max(0, monotonicNow() - since) / 1000)
  const what = ['left', 'died'].includes(activity) ? activity : `${activity} for ${time}`
  if (operation === undefined) return `${what}, no operation yet`
  const name = `${operation} #${sequence} of ${group ?? ''}`
  const waits = activity === 'waiting' ? `, for ${formatRanks(waitsFor)}` : ''
  return `${what}, ${state === 'operation' ? 'in' : 'after'} ${name}${waits}`
}

function describeStack({ isNode, fate, report }: RankStack): string[] {
  if (fate !== undefined) return []
  if (!isNode) return ['another program than Node (--no-python), which has no JavaScript stack']
  if (report === undefined)
    return ['no answer: the process is stopped, is starting, or has just ended']
  const { stack } = report
  if (stack === undefined)
    return ['no answer within 1 s: its main thread is blocked in native code']
  const frames = stack
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line.startsWith('at ') && !OURS.test(line))
  const own = frames.filter((line) => !/\(?node:/.test(line))
  if (own.length > 0) return own
  // All frames belong to Node, for example while it loads modules.
  if (frames.length > 0) return frames
  return ['no JavaScript runs: it awaits something in its event loop']
}

/** Matches the frames of the stack request. */
const OURS = /^at (\S+ \()?<anonymous>:\d+:\d+\)?$/
