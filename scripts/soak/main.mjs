// Trains under random faults for a while, and checks that nothing of it can be seen afterwards:
//   npm run soak -- --minutes 3
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { formatTable } from '../../packages/core/dist/index.js'
import { trainInPlace } from './in-place.mjs'
import { findGrowth, tableOf } from './judge.mjs'
import { listOf, livingProcesses } from './processes.mjs'
import { trainWithRestarts } from './restarts.mjs'

const parts = { restarts: soakRestarts, 'in-place': soakInPlace }
const options = {
  minutes: { type: 'string', default: '3' },
  ranks: { type: 'string', default: '4' },
  every: { type: 'string', default: '20' },
  seed: { type: 'string', default: '1' },
  part: { type: 'string', multiple: true, default: Object.keys(parts) },
  help: { type: 'boolean', default: false },
}
const { values } = parseArgs({ options })
if (values.help) {
  console.log(`npm run soak -- [options]: trains under random faults, and checks that they leave no trace

  --minutes <n>  how long the training of each part takes without faults (default 3)
  --ranks <n>    ranks (default 4)
  --every <s>    mean of the seconds between two faults (default 20)
  --seed <n>     of the faults (default 1)
  --part <name>  restarts, where all ranks start again from a checkpoint, or in-place, where the others
                 continue; default: one after the other`)
  process.exit()
}
const minutes = Number(values.minutes)
const ranks = Number(values.ranks)
const every = Number(values.every)
const seed = Number(values.seed)
if (!(minutes > 0 && ranks > 0 && every > 0))
  throw new Error('minutes, ranks and every are numbers above 0')
if (ranks < 3 && values.part.includes('in-place'))
  throw new Error('in place, of three ranks or more some are lost')
for (const part of values.part) {
  if (!Object.hasOwn(parts, part)) throw new Error(`--part is ${Object.keys(parts).join(' or ')}`)
}

/** Milliseconds between two steps of the disturbed training, so that it takes as long as it shall. */
const PACE = 40
/** Memory maps that koffi keeps of each thread of an engine that has ended: 3 MiB of addresses, hardly touched. */
const MAPS_OF_A_THREAD = 3
/** What the order of a sum may change in a parameter. */
const TOLERANCE = 1e-5
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
  for (const part of values.part) {
    const summary = await parts[part]()
    checkLeftovers()
    const end = problems.length === 0 ? 'equal parameters, nothing left' : 'not as without faults'
    console.log(`${summary}: ${end}`)
  }
} finally {
  rmSync(folder, { recursive: true, force: true })
}
for (const problem of problems) console.log(`FAILED: ${problem}`)
process.exitCode = problems.length > 0 ? 1 : 0

/** All ranks start again after a fault. Sums have the same order as without, so that all bits are the same. */
async function soakRestarts() {
  const steps = stepsOf(10)
  const job = { steps, ranks, folder, env }
  console.log(`reference: ${steps} steps of ${ranks} ranks without faults`)
  const wanted = await trainWithRestarts({ ...job, name: 'whole', pace: 0, args: [] })
  console.log(`soak: the same under a fault every ${every} s on average, seed ${seed}`)
  const plan = join(folder, 'plan.yaml')
  const kinds = ['kill', 'throw', 'exit', 'stop', 'busy', 'memory', 'reject']
  const faults = kinds.map((kind) => ({
    ...{ kind, meanSeconds: every * kinds.length },
    ...(['stop', 'busy'].includes(kind) && { forSeconds: 0.5 }),
  }))
  writeFileSync(plan, JSON.stringify({ seed, faults }))
  const args = ['--chaos', plan, '--max-restarts', '100000', '--grace', '2']
  const found = await trainWithRestarts({ ...job, name: 'disturbed', pace: PACE, args })
  problems.push(...wanted.problems, ...found.problems)

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
  problems.push(...findGrowth(found.samples, ['launcher', 'rank']))
  const unfinished = listOf(join(folder, 'disturbed'), { recursive: true }).filter((name) =>
    name.includes('unfinished'),
  )
  check(unfinished.length === 0, `unfinished checkpoints are left: ${unfinished.join(', ')}`)

  showTable(tableOf(found.samples))
  showTable([
    ['fault', 'times'],
    ...[...found.faults].map(([what, count]) => [what, String(count)]),
  ])
  const total = [...found.faults.values()].reduce((sum, count) => sum + count, 0)
  return `${total} faults, ${found.restarts} restarts, ${found.seconds.toFixed(0)} s`
}

/** Ranks are lost and come back, and the others continue. */
async function soakInPlace() {
  const steps = stepsOf(25)
  const job = { steps, ranks, seed, env }
  console.log(`reference: ${steps} steps of ${ranks} ranks, none of which is lost`)
  const wanted = await trainInPlace({ ...job, pace: 0, every: Infinity })
  console.log(`soak: the same, and a rank is lost every ${every} s on average, seed ${seed}`)
  const found = await trainInPlace({ ...job, pace: PACE, every })
  problems.push(...wanted.problems, ...found.problems)

  let farthest = NaN
  const first = wanted.results.get(0)?.parameters
  for (const { results } of [wanted, found]) {
    const own = results.get(0)?.parameters
    check(results.size === ranks, `${results.size} of ${ranks} ranks were there at the end`)
    for (const [rank, result] of results) {
      check(result.parameters === own, `rank ${rank} has other parameters than rank 0`)
      check(result.steps === steps, `rank ${rank} has made ${result.steps} steps, not ${steps}`)
    }
    if (first !== undefined && own !== undefined) farthest = distanceOf(first, own)
  }
  check(farthest <= TOLERANCE, `the parameters are ${farthest} away from those of the reference`)
  check(found.counts.lost > 0, 'no rank was lost')
  // The engine of a reconfigured world has another thread.
  const spare = MAPS_OF_A_THREAD * found.counts.lost
  problems.push(...findGrowth(found.samples, ['survivor'], spare))

  showTable(tableOf(found.samples))
  const { lost, together } = found.counts
  return (
    `${lost} ranks lost and taken in again, ${together} of them while others were, ` +
    `${found.seconds.toFixed(0)} s, parameters within ${farthest.toExponential(1)}`
  )
}

/** @param work - milliseconds that a step takes */
function stepsOf(work) {
  return Math.max(300, Math.round((minutes * 60_000) / (PACE + work)))
}

/** The largest difference of two parameters. */
function distanceOf(a, b) {
  const [one, other] = [a, b].map((text) => {
    const bytes = Uint8Array.from(Buffer.from(text, 'base64'))
    return new Float32Array(bytes.buffer)
  })
  return one.reduce((most, value, i) => Math.max(most, Math.abs(value - other[i])), 0)
}

function checkLeftovers() {
  const left = livingProcesses(folder)
  check(left.length === 0, `processes are left: ${left.join(', ')}`)
  const added = listOf('/dev/shm').filter((name) => !shared.includes(name))
  check(added.length === 0, `files are left in /dev/shm: ${added.join(', ')}`)
  const files = listOf(folder).filter(
    (name) => name.startsWith('tsrun') && !name.startsWith('tsrun-flight'),
  )
  check(files.length === 0, `temporary files are left: ${files.join(', ')}`)
}

function showTable(rows) {
  console.log(formatTable(rows).join('\n'))
}

function check(holds, problem) {
  if (!holds) problems.push(problem)
}
