// Several stages per rank: interleaved 1F1B (Narayanan et al., Megatron-LM, 2021).
//
//   npx tsrun --nproc auto examples/interleaved.ts
//   npx tsrun --nproc 2 examples/interleaved.ts --stages 6     (three stages per rank)
//
// 1F1B is idle for (S - 1) / (M + S - 1) of the time: while the pipeline fills, the last rank waits until
// a micro-batch has passed through all layers of the ranks before it. If each rank has several smaller
// parts of the network (chunks), it waits less. On four ranks with two chunks each, rank 0 has layers 0
// and 7, 8 of 16: the first layer is as much work as two others. A micro-batch visits each rank twice,
// each visit is half as long, and so is the bubble: (S - 1) / (v M + S - 1) with v chunks on S ranks.
//
// The cost is v times as many messages, smaller passes, and memory: compare how many micro-batches the
// ranks hold. So it helps where the bubble is large (many ranks, few micro-batches), each rank has a core,
// and the smaller passes still take long beside a message. By default there are as many micro-batches as
// ranks, the fewest with which all ranks have work. With `--microbatches 8`, two ranks can gain 6 to
// 8 % at most, and the cost is often larger. The output says how long a step should take.
//
// `looped` runs the same chunks breadth-first: all micro-batches pass through one chunk, then through
// the next. The bubble is the same, but all activations are held.
//
// Read: docs/pipeline.md#the-schedules. Exercises: examples/exercises.md#interleaved

import { comparisonFlags, compareSchedules, type Variant } from './lib/compare-schedules.ts'
import { count, readFlags } from './lib/flags.ts'
import { startJob } from './lib/job.ts'
import { checkRanks, checkStages, ranksOfJob } from './lib/stages.ts'

const { stages, ...flags } = readFlags({ ...comparisonFlags, microbatches: count(ranksOfJob()) })
checkRanks(flags.layers)
const group = await startJob(flags)
checkStages('interleaved', { ...flags, stages, ranks: group.size })
const [few = 1, ...more] = stages === 0 ? [2, 4] : [stages / group.size]
const variants: Variant[] = [
  { schedule: '1f1b' },
  ...[few, ...more].map((chunks) => ({ schedule: 'interleaved' as const, chunks })),
  { schedule: 'looped', chunks: few },
]
// Every chunk needs a layer.
const possible = variants.filter(({ chunks = 1 }) => chunks * group.size <= flags.layers)
await compareSchedules(group, possible, flags)
await group.destroy()
