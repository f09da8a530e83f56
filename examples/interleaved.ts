// Several stages per rank: interleaved 1F1B (Narayanan et al., Megatron-LM, 2021).
//
//   npx tsrun --nproc 4 examples/interleaved.ts
//
// 1F1B is idle for (S - 1) / (M + S - 1) of the time: while the pipeline fills, rank 3 waits until a
// micro-batch has passed through all layers of ranks 0 to 2. If each rank has several smaller parts of
// the network (chunks), it waits less. With two chunks per rank, rank 0 has layers 0, 1 and 8, 9 of 16.
// A micro-batch visits each rank twice, each visit is half as long, and so is the bubble:
// (S - 1) / (v M + S - 1) with v chunks.
//
// The cost is v times as many messages, and memory: compare how many micro-batches the ranks hold.
// `looped` runs the same chunks breadth-first: all micro-batches pass through one chunk, then through
// the next. The bubble is the same, but all activations are held.

import { compareSchedules, LAYERS, type Variant } from './lib/compare-schedules.ts'
import { count, jobFlags, readFlags } from './lib/flags.ts'
import { startJob } from './lib/job.ts'

const { steps, microbatches, ...job } = readFlags({
  steps: count(6),
  microbatches: count(8),
  ...jobFlags('auto'),
})
const group = await startJob(job)
const variants: Variant[] = [
  { schedule: '1f1b' },
  { schedule: 'interleaved', chunks: 2 },
  { schedule: 'interleaved', chunks: 4 },
  { schedule: 'looped', chunks: 2 },
]
// Every chunk needs a layer.
const possible = variants.filter(({ chunks = 1 }) => chunks * group.size <= LAYERS)
await compareSchedules(group, possible, microbatches, steps)
await group.destroy()
