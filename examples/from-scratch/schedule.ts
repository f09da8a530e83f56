// From scratch, part 3 of 3: what each rank computes, and when.
//
//   npx tsrun --nproc 4 examples/from-scratch/schedule.ts naive
//   npx tsrun --nproc 4 examples/from-scratch/schedule.ts gpipe
//   npx tsrun --nproc 4 examples/from-scratch/schedule.ts 1f1b [microbatches]
//
// A schedule is a list of passes for each rank. To run it, a rank receives what a pass needs, computes,
// and sends what the pass gives. The losses are those of the lessons 04 to 06, which do the same with the
// library, whatever the schedule.

import { availableParallelism } from 'node:os'
import { batches, loadBackend, mnist, tf, type Tensor } from '@tsrun/training'
import { end, init, receiveTensor, sendTensor, tellAll } from './comms.ts'
import { HIDDEN, judge, ShardedMLP } from './model.ts'

type Pass = readonly [kind: 'forward' | 'backward', microbatch: number]

const STEPS = 8
const ROWS = 128
const RATE = 0.0005

/** The passes of a rank, by the name of the schedule. */
const schedules: Record<string, (rank: number, size: number, count: number) => Pass[]> = {
  // One micro-batch after the other: all ranks but one wait.
  naive: (_rank, _size, count) =>
    numbers(count).flatMap((m): Pass[] => [
      ['forward', m],
      ['backward', m],
    ]),

  // All forward passes, then all backward passes: every micro-batch is kept until then.
  gpipe: (_rank, _size, count) => [
    ...numbers(count).map((m): Pass => ['forward', m]),
    ...numbers(count).map((m): Pass => ['backward', m]),
  ],

  // A backward pass as soon as one is possible: a rank keeps at most as many as there are ranks after it,
  // and one more.
  '1f1b': (rank, size, count) => {
    const ahead = Math.min(size - 1 - rank, count)
    return [
      ...numbers(ahead).map((m): Pass => ['forward', m]),
      ...numbers(count - ahead).flatMap((m): Pass[] => [
        ['forward', m + ahead],
        ['backward', m],
      ]),
      ...numbers(ahead).map((m): Pass => ['backward', count - ahead + m]),
    ]
  },
}

const [name = '1f1b', given = '8'] = process.argv.slice(2)
const { rank, size } = await init()
const count = Number(given)
const passes = schedules[name]?.(rank, size, count)
if (passes === undefined || !(Number.isInteger(count) && count > 0)) {
  if (rank === 0) console.error('expected: naive, gpipe or 1f1b, and a number of micro-batches')
  process.exitCode = 2
} else {
  await loadBackend()
  await train(passes)
}
await end()

async function train(passes: readonly Pass[]): Promise<void> {
  const stage = new ShardedMLP(rank, size)
  const [isFirst, isLast] = [rank === 0, rank === size - 1]
  const shape = [ROWS, HIDDEN]
  const losses: number[] = []
  // Ranks that share cores also wait for a core, so only their CPU time is work.
  const clock = size > availableParallelism() ? cpuTime : () => performance.now()
  let [busy, elapsed, most] = [0, 0, 0]

  for (const batch of batches(mnist({ split: 'train' }), { batch: count * ROWS })) {
    const [inputs, labels] = [batch.inputs(), batch.labels()]
    const part = (whole: Tensor, m: number) =>
      tf.slice(whole, m * ROWS, Math.min(ROWS, batch.size - m * ROWS))
    const starts = new Map<number, Tensor>()
    // A rank does not wait for its sends: its neighbour may be sending to it at the same time.
    const sends: Promise<void>[] = []
    let sum = 0
    let started: number | undefined

    for (const [kind, m] of passes) {
      const [isSource, from] = kind === 'forward' ? [isFirst, rank - 1] : [isLast, rank + 1]
      const received = isSource ? undefined : await receiveTensor(shape, from)
      started ??= performance.now()
      const begin = clock()
      if (kind === 'forward') {
        const y = stage.forward(m, received ?? part(inputs, m))
        if (isLast) {
          const own = part(labels, m)
          const { loss, d } = judge(y, own, batch.size)
          own.dispose()
          starts.set(m, d)
          sum += loss
        } else sends.push(sendTensor(y, rank + 1))
      } else {
        const dx = stage.backward(m, received ?? starts.get(m)!)
        if (!isFirst) sends.push(sendTensor(dx, rank - 1))
        dx.dispose()
      }
      busy += clock() - begin
      most = Math.max(most, stage.inFlight.size)
    }
    elapsed += performance.now() - started!

    await Promise.all(sends)
    stage.step(RATE)
    tf.dispose([inputs, labels])
    losses.push(sum / batch.size)
    // The first step also compiles, so it does not count.
    if (losses.length === 1) [busy, elapsed] = [0, 0]
    if (losses.length === STEPS) break
  }

  const all = await tellAll({ losses, busy, most })
  if (rank > 0) return
  // From the first forward pass to the last backward pass, which are those of rank 0.
  const idles = all.map((each) => 1 - each.busy / elapsed)
  console.log(`${name}: ${size} ranks, ${count} micro-batches of ${ROWS} images`)
  for (const [i, loss] of all[size - 1]!.losses.entries()) {
    console.log(`step ${i + 1}  loss ${loss.toFixed(6)}`)
  }
  for (const [at, each] of all.entries()) {
    const share = `${(100 * idles[at]!).toFixed(0)} % idle`
    console.log(`rank ${at}: ${share}, at most ${each.most} micro-batches in flight`)
  }
  console.log(`result ${JSON.stringify({ losses: all[size - 1]!.losses, idles })}`)
}

/** Of all threads of this process, in milliseconds. */
function cpuTime(): number {
  const { user, system } = process.cpuUsage()
  return (user + system) / 1000
}

function numbers(count: number): number[] {
  return Array.from({ length: count }, (_, i) => i)
}
