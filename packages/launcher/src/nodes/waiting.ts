import type { Announcer } from '../logs/console.ts'
import type { NodeFacts } from '../protocol/nodes.ts'

/** Milliseconds before the first announcement. Each later pause is twice as long, up to LATER. */
const FIRST = 2000
const LATER = 30_000

export type WaitAnnouncer = ReturnType<typeof announceWait>

/**
 * Announces periodically which nodes this one is waiting for, until `end`.
 *
 * @param whom - for example `nodes 1, 3`
 */
export function announceWait(announcer: Announcer, whom: string) {
  const started = performance.now()
  let timer: NodeJS.Timeout
  const schedule = (pause: number): void => {
    timer = setTimeout(() => {
      const seconds = Math.round((performance.now() - started) / 1000)
      const message = `waiting for ${waiting.whom}; ${seconds} s`
      announcer.say('rendezvous', message, { whom: waiting.whom, seconds })
      schedule(Math.min(2 * pause, LATER))
    }, pause)
  }
  const waiting = {
    whom,
    end: (): void => {
      clearTimeout(timer)
    },
  }
  schedule(FIRST)
  return waiting
}

/** `node 1`, `nodes 1, 3`. */
export function nameNodes(nodes: readonly number[]): string {
  return `${nodes.length === 1 ? 'node' : 'nodes'} ${nodes.join(', ')}`
}

/** Milliseconds between heartbeats. */
export const HEARTBEAT = 1000
/** The number of missed heartbeats after which the silence of a node is announced. */
const NOTABLE = 5

interface HeardNode {
  readonly node: () => Pick<NodeFacts, 'nodeRank' | 'host'>
  /** The consequence of losing the node, for example `the job fails`. */
  readonly consequence: string
  /** Called once, when nothing has arrived within the limit. */
  readonly onLost: () => void
}

export type HeartbeatMonitor = ReturnType<typeof monitorHeartbeats>

/**
 * Announces when the heartbeats of another node stop, and when they arrive again.
 *
 * Counts missed heartbeats instead of reading the clock. A launcher that was suspended for an hour
 * (Ctrl-Z) then finds the heartbeats of the others in its socket when it resumes.
 *
 * @param limit - milliseconds
 */
export function monitorHeartbeats(
  announcer: Pick<Announcer, 'say'>,
  limit: number,
  { node, consequence, onLost }: HeardNode,
) {
  const most = Math.max(1, Math.ceil(limit / HEARTBEAT))
  let missed = 0
  const say = (heartbeats: number, describe: (time: string) => string): void => {
    const { nodeRank, host } = node()
    const seconds = (heartbeats * HEARTBEAT) / 1000
    const message = `node ${nodeRank} (${host}) ${describe(`${seconds} s`)}`
    announcer.say('silent', message, { node: nodeRank, seconds })
  }
  return {
    heard(): void {
      if (missed > NOTABLE) say(missed, (time) => `is back after ${time} of silence`)
      missed = 0
    },

    /** Must be called every HEARTBEAT milliseconds. */
    tick(): void {
      missed++
      if (missed === most + 1) onLost()
      else if (missed === NOTABLE + 1 && missed <= most) {
        say(
          NOTABLE,
          (time) => `has been silent for ${time}; ${consequence} after ${limit / 1000} s`,
        )
      }
    },
  }
}
