// How long a job lives after one of its ranks was killed, and until a host without a link is named.
import { spawn } from 'node:child_process'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { withHosts } from '../hosts.mjs'
import { RunError, tsrunLine } from '../programs.mjs'

const script = fileURLToPath(new URL('working-rank.mjs', import.meta.url))

/** Milliseconds for what has no bound of its own: the start of a job, and its end. */
const PATIENCE = 60_000

/** A launcher with what it has written so far. */
class Launcher {
  /** @param {import('../programs.mjs').CommandLine} line */
  constructor({ command, args, env }) {
    this.output = ''
    this.child = spawn(command, args, {
      env: { ...process.env, ...env },
      stdio: ['ignore', 'pipe', 'pipe'],
    })
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream.on('data', (/** @type {Buffer} */ chunk) => {
        this.output += chunk.toString()
      })
    }
  }

  get hasEnded() {
    return this.child.exitCode !== null || this.child.signalCode !== null
  }

  /** The process numbers of its ranks that work. */
  get ranks() {
    return Array.from(this.output.matchAll(/working (\d+)$/gm), ([, pid]) => Number(pid))
  }
}

/**
 * Milliseconds from the SIGKILL of one of so many ranks of this host until all of the job is gone.
 *
 * @param {number} ranks
 * @returns {Promise<number>}
 */
export async function measureLocalEnd(ranks) {
  const launcher = new Launcher(tsrunLine(ranks, script))
  return await killOne([launcher], ranks, 0)
}

/**
 * The same on several hosts; the rank is on the second.
 *
 * @param {number} count - of the hosts
 * @returns {Promise<number>}
 */
export async function measureHostsEnd(count) {
  return await withHosts(count, async (hosts) => await killOne(startOn(count, hosts), 2, 1))
}

/**
 * Milliseconds from the cut of a host's link until the launcher of host 0 names that host.
 *
 * @param {number} count
 * @returns {Promise<number>}
 */
export async function measureCut(count) {
  return await withHosts(count, async (hosts) => {
    const launchers = startOn(count, hosts)
    await allWork(launchers, 2)
    const since = performance.now()
    hosts.cut(1)
    await until(() => /node 1 \(n1\) has been silent/.test(launchers[0]?.output ?? ''), launchers)
    return performance.now() - since
  })
}

/**
 * @param {number} count
 * @param {import('../hosts.mjs').Hosts} hosts
 */
function startOn(count, hosts) {
  return Array.from({ length: count }, (_, host) => new Launcher(hosts.tsrun(host, 2, script)))
}

/**
 * @param {readonly Launcher[]} launchers
 * @param {number} ranks - of each
 * @param {number} victim - the launcher whose first rank is killed
 */
async function killOne(launchers, ranks, victim) {
  await allWork(launchers, ranks)
  const pids = launchers.flatMap((launcher) => launcher.ranks)
  const since = performance.now()
  process.kill(launchers[victim]?.ranks[0] ?? NaN, 'SIGKILL')
  await until(() => launchers.every(({ hasEnded }) => hasEnded) && !pids.some(isThere), launchers)
  return performance.now() - since
}

/**
 * @param {readonly Launcher[]} launchers
 * @param {number} ranks
 */
async function allWork(launchers, ranks) {
  await until(() => launchers.every((launcher) => launcher.ranks.length === ranks), launchers)
}

/**
 * @param {() => boolean} holds
 * @param {readonly Launcher[]} launchers
 */
async function until(holds, launchers) {
  const deadline = performance.now() + PATIENCE
  while (!holds()) {
    if (performance.now() > deadline) {
      throw new RunError(`tsrun: ${launchers.map(({ output }) => output).join('\n')}`)
    }
    await pause(2)
  }
}

/** @param {number} pid */
function isThere(pid) {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}
