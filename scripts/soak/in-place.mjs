// Training that loses ranks and takes them in again while the others continue: only lost processes are
// restarted. This script plays what keeps each rank alive, such as one pod for each.
import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { seededRandom, toEnvironment } from '../../packages/core/dist/index.js'
import { startStoreServer } from '../../packages/store/dist/index.js'
import { usageOf } from './processes.mjs'

const script = fileURLToPath(new URL('replica.mjs', import.meta.url))
/** Steps that ranks make without those that were lost. */
const ABSENCE = 25
/** Milliseconds in which a second rank may be lost, so that it is while the others shrink, or soon after. */
const SOON = 300
/** How often one is, as a share. */
const TOGETHER = 0.3

/**
 * Trains to the end. The last rank is never lost, so that its process shows what recovery leaves behind.
 *
 * @param {object} options
 * @param {number} options.steps
 * @param {number} options.ranks
 * @param {number} options.pace - milliseconds between two steps
 * @param {number} options.every - mean of the seconds between two losses; Infinity: there are none
 * @param {number} options.seed - of the losses
 * @param {NodeJS.ProcessEnv} options.env
 */
export async function trainInPlace({ steps, ranks, pace, every, seed, env }) {
  const begin = performance.now()
  const token = randomBytes(32).toString('hex')
  const server = await startStoreServer({ host: '127.0.0.1', port: 0, token })
  const { host, port } = server.endpoint
  const random = seededRandom(seed)
  const problems = []
  /** By rank: what it says at its end. */
  const results = new Map()
  const samples = []
  const counts = { lost: 0, together: 0 }
  /** The newest process of each rank. */
  const children = []
  const lost = new Set()
  /** Whether the others wait for those that were lost. */
  let isAwaited = false
  let next = nextLoss()
  let end
  const ended = new Promise((resolve) => (end = resolve))

  function nextLoss() {
    return performance.now() - 1000 * every * Math.log(1 - random())
  }

  function start(rank) {
    const environment = toEnvironment({
      ...{ rank, worldSize: ranks, localRank: rank, localWorldSize: ranks, nodeRank: 0, nnodes: 1 },
      ...{ masterAddr: host, masterPort: port, runId: 'soak', token, restartCount: 0 },
    })
    const child = spawn(
      process.execPath,
      ['--expose-gc', script, ...[steps, pace, ABSENCE].map(String)],
      {
        env: { ...env, ...environment },
        stdio: ['ignore', 'pipe', 'pipe'],
      },
    )
    children[rank] = child
    let stderr = ''
    child.stderr.setEncoding('utf8').on('data', (text) => (stderr = (stderr + text).slice(-4000)))
    createInterface({ input: child.stdout }).on('line', (line) => {
      // one that is killed may have written the half of a line
      if (!lost.has(rank) || line.endsWith('}')) hear(rank, JSON.parse(line))
    })
    child.once('close', (code, signal) => {
      if (code !== 0 && !lost.has(rank)) {
        problems.push(`rank ${rank} ended with ${code ?? signal} by itself: ${stderr}`)
        children.forEach((_, other) => lose(other))
      }
      if (children.every(hasEnded) && (lost.size === 0 || problems.length > 0)) end()
    })
  }

  function lose(rank) {
    if (hasEnded(children[rank])) return
    lost.add(rank)
    children[rank].kill('SIGKILL')
  }

  function hear(rank, said) {
    if (said.kind === 'end') results.set(rank, said)
    else if (said.kind === 'waits') takeIn()
    else if (said.ranks === ranks) {
      isAwaited = false
      // those that are lost come back before the end
      if (performance.now() < next || lost.size > 0 || said.step + 4 * ABSENCE > steps) return
      next = nextLoss()
      strike()
    }
  }

  function strike() {
    const [first, second] = [0, 0].map(() => Math.floor(random() * (ranks - 1)))
    const [delay, isAlone] = [random() * SOON, random() > TOGETHER]
    lose(first)
    counts.lost++
    if (isAlone || second === first) return
    setTimeout(() => {
      if (isAwaited) return
      lose(second)
      counts.lost++
      counts.together++
    }, delay)
  }

  function takeIn() {
    if (isAwaited || problems.length > 0) return
    isAwaited = true
    const ranks = [...lost]
    lost.clear()
    ranks.forEach(start)
  }

  for (let rank = 0; rank < ranks; rank++) start(rank)
  const { pid } = children.at(-1)
  const sampling = setInterval(() => {
    const usage = usageOf(pid)
    const at = (performance.now() - begin) / 1000
    if (usage !== undefined) samples.push({ who: 'survivor', at, ...usage })
  }, 1000)
  await ended
  clearInterval(sampling)
  await server.close()
  return { results, samples, counts, problems, seconds: (performance.now() - begin) / 1000 }
}

function hasEnded({ exitCode, signalCode }) {
  return exitCode !== null || signalCode !== null
}
