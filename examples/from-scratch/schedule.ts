// From scratch, part 3 of 3: what each rank computes, and when.
//
//   npx tsrun --nproc auto examples/from-scratch/schedule.ts naive
//   npx tsrun --nproc auto examples/from-scratch/schedule.ts gpipe
//   npx tsrun --nproc auto examples/from-scratch/schedule.ts 1f1b --microbatches 16
//
// A schedule is a list of passes for each rank. A rank receives what a pass needs, computes, and sends the
// result. The losses are those of the lessons 04 to 06, for every schedule and number of micro-batches.
// Read: docs/concepts.md. Exercises: examples/exercises.md#from-scratch

import { availableParallelism } from 'node:os'
import { batches, mnist, tf, type Tensor } from '@tsrun/training'
import { schedule } from '@tsrun/training/planning'
import { choice, count, endWith, jobFlags, joinOptions, readFlags } from '../lib/flags.ts'
import { loadShown } from '../lib/job.ts'
import { describeSending, messagesFlag } from '../lib/messages.ts'
import { percent } from '../lib/output.ts'
import { checkRanks } from '../lib/stages.ts'
import { end, init, nextRank, previousRank, receiveTensor, sendTensor, tellAll } from './comms.ts'
import { judge, LAYERS, ShardedMLP, WIDTH } from './model.ts'

type Pass = readonly [kind: 'forward' | 'backward', microbatch: number]

const [STEPS, BATCH, RATE] = [8, 2048, 0.0005]

const F = (m: number): Pass => ['forward', m]
const B = (m: number): Pass => ['backward', m]
const upTo = (end: number): number[] => Array.from({ length: end }, (_, m) => m)

/** The passes of a rank, in a step of M micro-batches on S ranks. */
function passesOf(name: 'naive' | 'gpipe' | '1f1b', rank: number, S: number, M: number): Pass[] {
  // One micro-batch after the other: all ranks but one wait.
  if (name === 'naive') return upTo(M).flatMap((m) => [F(m), B(m)])

  // All forward passes, then all backward passes: every micro-batch is kept until then.
  if (name === 'gpipe') return [...upTo(M).map(F), ...upTo(M).map(B)]

  // 1F1B, a backward pass as soon as one is possible: a rank keeps at most as many micro-batches as there
  // are ranks after it, and one more.
  const ahead = Math.min(S - 1 - rank, M)
  const steady = upTo(M - ahead).flatMap((m) => [F(m + ahead), B(m)])
  return [...upTo(ahead).map(F), ...steady, ...upTo(ahead).map((m) => B(M - ahead + m))]
}

const own = { schedule: choice(['naive', 'gpipe', '1f1b'], '1f1b'), microbatches: count(8) }
const flags = readFlags({ ...own, messages: messagesFlag, ...jobFlags() }, 2)
const { schedule: name, microbatches: M } = flags
const rows = BATCH / M
if (!Number.isInteger(rows)) endWith(`${BATCH} images do not divide into ${M} micro-batches`)
checkRanks(LAYERS)
const { rank, size: S } = await init(joinOptions(flags))
await loadShown(rank, flags.device)
await train(passesOf(name, rank, S, M))
await end()

async function train(passes: readonly Pass[]): Promise<void> {
  const stage = new ShardedMLP(rank, S)
  const [isFirst, isLast] = [rank === 0, rank === S - 1]
  const shape = [rows, WIDTH]
  const losses: number[] = []
  // Ranks that share cores also wait for a core, so only their CPU time is work.
  const cores = availableParallelism()
  const clock = S > cores ? cpuTime : () => performance.now()
  let [busy, elapsed, most] = [0, 0, 0]

  for (const batch of batches(mnist({ split: 'train' }), { batch: BATCH })) {
    // Not within a pass: on wasm, tf.split copies the whole batch for each part.
    const cut = (whole: Tensor) => {
      const parts = tf.split(whole, M)
      whole.dispose()
      return parts
    }
    const inputs = isFirst ? cut(batch.inputs()) : []
    const labels = isLast ? cut(batch.labels()) : []
    const starts = new Map<number, Tensor>()
    // A rank does not wait for its sends: its neighbour may be sending to it at the same time.
    const sends: Promise<void>[] = []
    let sum = 0
    let started: number | undefined

    for (const [kind, m] of passes) {
      const [isSource, from] = kind === 'forward' ? [isFirst, previousRank()] : [isLast, nextRank()]
      const received = isSource ? undefined : await receiveTensor(shape, from)
      started ??= performance.now()
      const begin = clock()
      if (kind === 'forward') {
        const y = stage.forward(m, received ?? inputs[m]!)
        if (isLast) {
          const { loss, d } = judge(y, labels[m]!, BATCH)
          starts.set(m, d)
          sum += loss
        } else sends.push(send(y, nextRank()))
      } else {
        const dx = stage.backward(m, received ?? starts.get(m)!)
        if (dx !== undefined) sends.push(send(dx, previousRank()))
        dx?.dispose()
      }
      busy += clock() - begin
      most = Math.max(most, stage.inFlight.size)
    }
    elapsed += performance.now() - started!

    await Promise.all(sends)
    stage.step(RATE)
    losses.push(sum / BATCH)
    // The first step also compiles, so it does not count.
    if (losses.length === 1) [busy, elapsed] = [0, 0]
    if (losses.length === STEPS) break
  }

  const all = await tellAll({ losses, busy, most, layers: stage.span })
  if (rank > 0) return
  // From the first forward pass to the last backward pass, which are those of rank 0.
  const idles = all.map((each) => 1 - each.busy / elapsed)
  console.log(`${name}: ${S} ranks, ${M} micro-batches of ${rows} images`)
  const { losses: seen } = all[S - 1]!
  for (const [i, loss] of seen.entries()) console.log(`step ${i + 1}  loss ${loss.toFixed(6)}`)
  for (const [at, { layers, most }] of all.entries()) {
    const share = `${percent(idles[at]!, 0)} idle`
    console.log(`rank ${at}: layers ${layers}, ${share}, at most ${most} micro-batches in flight`)
  }
  const idle = percent(idles.reduce((a, b) => a + b) / S)
  const formula = name === 'naive' ? '(S - 1) / S' : '(S - 1) / (M + S - 1)'
  const plan = schedule(name, { stages: S, microbatches: M })
  console.log(`all ranks: ${idle} idle; ${formula} = ${percent(plan.simulate().bubble)}`)
  const shared = percent(plan.simulate({ cores }).bubble)
  if (cores < S) console.log(`With ${cores} cores, the simulator predicts ${shared}.`)
  console.log(`result ${JSON.stringify({ losses: seen, idles })}`)
}

async function send(tensor: Tensor, to: number): Promise<void> {
  if (flags.messages) console.log(describeSending(tensor.shape, to))
  await sendTensor(tensor, to)
}

/** Of all threads of this process, in milliseconds. */
function cpuTime(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}
