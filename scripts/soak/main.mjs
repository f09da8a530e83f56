// Trains under random faults for a while, and checks that nothing of it can be seen afterwards:
//   npm run soak -- --minutes 3
import { spawn } from 'node:child_process'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { formatTable } from '../../packages/core/dist/index.js'
import { findGrowth, tableOf } from './judge.mjs'

const options = {
  minutes: { type: 'string', default: '3' },
  ranks: { type: 'string', default: '4' },
  every: { type: 'string', default: '20' },
  seed: { type: 'string', default: '1' },
  help: { type: 'boolean', default: false },
}
const { values } = parseArgs({ options })
if (values.help) {
  console.log(`npm run soak -- [options]: trains under random faults, and checks that they leave no trace

  --minutes <n>  how long the training takes without faults (default 3)
  --ranks <n>    ranks (default 4)
  --every <s>    mean of the seconds between two faults (default 20)
  --seed <n>     of the faults (default 1)`)
  process.exit()
}
const minutes = Number(values.minutes)
const ranks = Number(values.ranks)
const every = Number(values.every)
if (!(minutes > 0 && ranks > 0 && every > 0))
  throw new Error('minutes, ranks and every are numbers above 0')

const tsrun = fileURLToPath(new URL('../../packages/launcher/bin/tsrun.js', import.meta.url))
const script = fileURLToPath(new URL('train.mjs', import.meta.url))
/** Milliseconds between two steps of the disturbed training, so that it takes as long as it shall. */
const PACE = 40
const steps = Math.max(60, Math.round((minutes * 60_000) / (PACE + 10)))
const folder = mkdtempSync(join(tmpdir(), 'tsrun-soak-'))
const env = {
  ...process.env,
  TMPDIR: folder,
  TSRUN_RUNS_DIR: join(folder, 'runs'),
  TSRUN_SOAK: folder,
}
const shared = listOf('/dev/shm')
const problems = []
try {
  await main()
} finally {
  rmSync(folder, { recursive: true, force: true })
}
for (const problem of problems) console.log(`FAILED: ${problem}`)
process.exitCode = problems.length > 0 ? 1 : 0

async function main() {
  console.log(`reference: ${steps} steps of ${ranks} ranks without faults`)
  const wanted = await train('whole', 0, [])
  console.log(`soak: the same under a fault every ${every} s on average, seed ${values.seed}`)
  const plan = join(folder, 'plan.yaml')
  const kinds = ['kill', 'throw', 'exit', 'stop', 'busy', 'memory', 'reject']
  const faults = kinds.map((kind) => ({
    ...{ kind, meanSeconds: every * kinds.length },
    ...(['stop', 'busy'].includes(kind) && { forSeconds: 0.5 }),
  }))
  writeFileSync(plan, JSON.stringify({ seed: Number(values.seed), faults }))
  const args = ['--chaos', plan, '--max-restarts', '100000', '--grace', '2']
  const found = await train('disturbed', PACE, args)

  for (const rank of wanted.results.keys()) {
    const [a, b] = [wanted.results.get(rank), found.results.get(rank)]
    check(b !== undefined && a.digest === b.digest, `the parameters of rank ${rank} differ`)
    check(b !== undefined && String(a.last) === String(b.last), `the losses of rank ${rank} differ`)
    check(b?.steps === steps, `rank ${rank} has made ${b?.steps} steps, not ${steps}`)
    for (const one of [a, b]) {
      const expected = (steps - (one?.from ?? NaN)) * one?.batch
      check(one?.seen === expected, `rank ${rank} has seen ${one?.seen} examples, not ${expected}`)
    }
  }
  check(wanted.results.size === ranks, 'not every rank has ended the undisturbed training')
  check(found.faults.size > 0, 'there was no fault')
  problems.push(...findGrowth(found.samples))
  const left = livingProcesses()
  check(left.length === 0, `processes are left: ${left.join(', ')}`)
  const added = listOf('/dev/shm').filter((name) => !shared.includes(name))
  check(added.length === 0, `files are left in /dev/shm: ${added.join(', ')}`)
  const files = listOf(folder).filter(
    (name) => name.startsWith('tsrun') && !name.startsWith('tsrun-flight'),
  )
  check(files.length === 0, `temporary files are left: ${files.join(', ')}`)
  const unfinished = listOf(join(folder, 'disturbed'), { recursive: true }).filter((name) =>
    name.includes('unfinished'),
  )
  check(unfinished.length === 0, `unfinished checkpoints are left: ${unfinished.join(', ')}`)

  console.log(formatTable(tableOf(found.samples)).join('\n'))
  const counts = [...found.faults].map(([what, count]) => [what, String(count)])
  console.log(formatTable([['fault', 'times'], ...counts]).join('\n'))
  const total = [...found.faults.values()].reduce((sum, count) => sum + count, 0)
  console.log(
    `${total} faults, ${found.restarts} restarts, ${found.seconds.toFixed(0)} s: ` +
      (problems.length === 0 ? 'equal parameters, nothing left' : 'not as without faults'),
  )
}

/**
 * Trains to the end.
 *
 * @param {string} name - of the folder with the checkpoints
 * @param {number} pace
 * @param {readonly string[]} args - of tsrun
 */
async function train(name, pace, args) {
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
    const [, what] = /tsrun: chaos: rank \d+ (.+), by chance/.exec(line) ?? []
    if (what !== undefined) faults.set(what, (faults.get(what) ?? 0) + 1)
    if (line.includes('starting all ranks again')) restarts++
  })
  let isOver = false
  const samples = []
  const sampling = (async () => {
    while (!isOver) {
      samples.push(...sample(child.pid, (performance.now() - begin) / 1000))
      await pause(1000)
    }
  })()
  const code = await new Promise((resolve) => child.on('close', resolve))
  isOver = true
  await sampling
  check(code === 0, `the training '${name}' ended with code ${code}: ${stderr.slice(-2000)}`)
  const lines = stdout.split('\n').filter((line) => line.startsWith('{'))
  const results = new Map(
    lines.map((line) => JSON.parse(line)).map((result) => [result.rank, result]),
  )
  return { results, samples, faults, restarts, seconds: (performance.now() - begin) / 1000 }
}

/** What the launcher and the ranks use now. Ranks are told apart by their place among its children. */
function sample(launcher, at) {
  const children = (readText(`/proc/${launcher}/task/${launcher}/children`) ?? '').trim().split(' ')
  const pids = [launcher, ...children.filter((text) => text !== '').map(Number)]
  return pids.flatMap((pid) => {
    const status = readText(`/proc/${pid}/status`)
    const of = (key) => Number(new RegExp(`^${key}:\\s+(\\d+)`, 'm').exec(status ?? '')?.[1])
    if (status === undefined || Number.isNaN(of('VmRSS'))) return []
    const age = ageOf(pid)
    const descriptors = listOf(`/proc/${pid}/fd`).length
    const maps = (readText(`/proc/${pid}/maps`) ?? '').split('\n').length
    const facts = {
      at,
      pid,
      age,
      mib: of('VmRSS') / 1024,
      threads: of('Threads'),
      descriptors,
      maps,
    }
    return [{ who: pid === launcher ? 'launcher' : 'rank', ...facts }]
  })
}

/** The seconds since a process was started. */
function ageOf(pid) {
  const stat = readText(`/proc/${pid}/stat`) ?? ''
  const ticks = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19])
  return Number(readText('/proc/uptime').split(' ')[0]) - ticks / 100
}

/** The processes that have the variable of this soak, but this one. */
function livingProcesses() {
  return listOf('/proc').filter((pid) => {
    if (!/^\d+$/.test(pid) || Number(pid) === process.pid) return false
    const isDead = /^State:\s+[ZX]/m.test(readText(`/proc/${pid}/status`) ?? '')
    return !isDead && (readText(`/proc/${pid}/environ`) ?? '').includes(`TSRUN_SOAK=${folder}`)
  })
}

function listOf(path, options = {}) {
  try {
    return readdirSync(path, options)
  } catch {
    return []
  }
}

function readText(path) {
  try {
    return readFileSync(path, 'latin1')
  } catch {
    return undefined
  }
}

function check(holds, problem) {
  if (!holds) problems.push(problem)
}
