import { once } from 'node:events'
import { createServer, type AddressInfo } from 'node:net'
import { join } from 'node:path'
import { usageError } from '../../args/readers.ts'
import type { InspectOptions, ProgramOptions } from '../../args/job-options.ts'
import type { Announcer } from '../../logs/console.ts'

/** Where a rank listens for a debugger. */
interface DebuggerPlace {
  readonly host: string
  /** 0: any free port. */
  readonly port: number
  /** True if the rank waits for the debugger before the first line of its script. */
  readonly waits: boolean
}

/** The inputs of a plan that differ between attempts. */
export interface AttemptSetup {
  /** More variables for all ranks. */
  readonly environment?: Readonly<Record<string, string>>
  /** The folder of the log files of the attempt, if there are any. */
  readonly directory?: string | undefined
  readonly debuggers?: ReadonlyMap<number, DebuggerPlace>
}

/** The Node arguments that only this rank gets. */
export function ownNodeArguments(
  { profiles }: ProgramOptions,
  rank: number,
  { directory, debuggers }: AttemptSetup,
): string[] {
  const folder = join(directory ?? '.', String(rank))
  const place = debuggers?.get(rank)
  return [
    ...profiles.flatMap((kind) => [`--${kind}-prof`, `--${kind}-prof-dir=${folder}`]),
    // The launcher announces the address, so Node need not print it on stderr.
    ...(place === undefined
      ? []
      : [
          `--inspect${place.waits ? '-brk' : ''}=${place.host}:${place.port}`,
          '--inspect-publish-uid=http',
        ]),
  ]
}

/**
 * Where the ranks of this host listen for debuggers. For port 0, chooses a free port here, because a
 * rank that waits for its debugger cannot report its port.
 */
export async function placeDebuggers(
  inspect: InspectOptions | undefined,
  ranks: readonly number[],
): Promise<Map<number, DebuggerPlace>> {
  const places = assumedDebuggers(inspect, ranks)
  const open = [...places.entries()].filter(([, { port }]) => port === 0)
  // Keep all ports bound until the last is found, so that no two are the same.
  const servers = await Promise.all(open.map(([, { host }]) => listen(host)))
  for (const [i, [rank, place]] of open.entries()) {
    places.set(rank, { ...place, port: (servers[i]!.address() as AddressInfo).port })
  }
  await Promise.all(servers.map((server) => once(server.close(), 'close')))
  return places
}

/** Like `placeDebuggers`, but port 0 stays 0 (for `--dry-run`). */
export function assumedDebuggers(
  inspect: InspectOptions | undefined,
  ranks: readonly number[],
): Map<number, DebuggerPlace> {
  if (inspect === undefined) return new Map()
  const { host, port, rank } = inspect
  if (rank !== undefined) {
    return new Map(ranks.includes(rank) ? [[rank, { host, port: port ?? 0, waits: true }]] : [])
  }
  return new Map(
    ranks.map((each, localRank) => [
      each,
      { host, port: port === undefined ? 0 : port + localRank, waits: false },
    ]),
  )
}

async function listen(host: string): Promise<ReturnType<typeof createServer>> {
  const server = createServer()
  try {
    await once(server.listen(0, host.replaceAll(/[[\]]/g, '')), 'listening')
  } catch (cause) {
    throw usageError(`--inspect names ${host}: ${(cause as Error).message}`, cause)
  }
  return server
}

const LOOPBACK = /^(127\.|\[::1\]$|localhost$)/

/** Says where ranks listen for debuggers. */
export function announceDebuggers(
  debuggers: ReadonlyMap<number, DebuggerPlace>,
  announcer: Announcer,
): void {
  for (const [rank, { host, port, waits }] of debuggers) {
    const at = `${host}:${port}`
    const how = `chrome://inspect, an editor, or node inspect ${at}`
    const what = waits ? 'waits for a debugger' : 'debugger'
    const message = `rank ${rank}: ${what} at ${at} (${how})`
    announcer.say('debugger', message, { rank, host, port, waits })
  }
  const open = [...debuggers.values()].find(({ host }) => !LOOPBACK.test(host))
  if (open === undefined) return
  announcer.say('debugger-open', `whoever reaches ${open.host} can run programs in these ranks`)
}
