// Training that starts again after each fault, from its newest checkpoint, as tsrun does it.
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { childrenOf, usageOf } from './processes.mjs'

const tsrun = fileURLToPath(new URL('../../packages/launcher/bin/tsrun.js', import.meta.url))
const script = fileURLToPath(new URL('train.mjs', import.meta.url))

/**
 * Trains to the end.
 *
 * @param {object} options
 * @param {number} options.steps
 * @param {number} options.ranks
 * @param {number} options.pace - milliseconds between two steps
 * @param {string} options.folder - in which there is one of this name with the checkpoints
 * @param {string} options.name
 * @param {readonly string[]} options.args - of tsrun
 * @param {NodeJS.ProcessEnv} options.env
 */
export async function trainWithRestarts({ steps, ranks, pace, folder, name, args, env }) {
  const begin = performance.now()
  const flags = ['--nproc', String(ranks), '--no-summary', '--log-format', 'raw', ...args]
  const child = spawn(
    process.execPath,
    [tsrun, ...flags, script, join(folder, name), String(steps), String(pace)],
    { env, stdio: ['ignore', 'pipe', 'pipe'] },
  )
  let [stdout, stderr] = ['', '']
  child.stdout.setEncoding('utf8').on('data', (text) => (stdout += text))
  child.stderr
    .setEncoding('utf8')
    .on('data', (text) => (stderr = (stderr + text).slice(-1_000_000)))
  const faults = new Map()
  let restarts = 0
  createInterface({ input: child.stderr }).on('line', (line) => {
    const [, what] = /tsrun: chaos: rank \d+ gets the fault (.+), by chance/.exec(line) ?? []
    if (what !== undefined) faults.set(what, (faults.get(what) ?? 0) + 1)
    if (line.includes('starting all ranks again')) restarts++
  })
  let isOver = false
  const samples = []
  const sampling = (async () => {
    while (!isOver) {
      const at = (performance.now() - begin) / 1000
      for (const pid of [child.pid, ...childrenOf(child.pid)]) {
        const usage = usageOf(pid)
        const who = pid === child.pid ? 'launcher' : 'rank'
        if (usage !== undefined) samples.push({ who, at, ...usage })
      }
      await pause(1000)
    }
  })()
  const code = await new Promise((resolve) => child.on('close', resolve))
  isOver = true
  await sampling
  const problems =
    code === 0 ? [] : [`the training '${name}' ended with code ${code}: ${stderr.slice(-2000)}`]
  const lines = stdout.split('\n').filter((line) => line.startsWith('{'))
  const results = new Map(
    lines.map((line) => JSON.parse(line)).map((result) => [result.rank, result]),
  )
  const seconds = (performance.now() - begin) / 1000
  return { results, samples, faults, restarts, problems, seconds }
}
