// Several stages a rank: interleaved 1F1B (Narayanan et al., Megatron-LM, 2021).
//
//   npx tsrun --nproc 4 examples/interleaved.ts
//
// 1F1B is idle for (S - 1) / (M + S - 1) of the time: while the pipeline fills, rank 3 waits until a
// micro-batch has been through all that ranks 0 to 2 have. Cut that into smaller pieces and it waits
// less. With two chunks a rank, of 16 layers rank 0 has 0, 1 and 8, 9; a micro-batch comes round
// twice, each visit is half as long, and so is the bubble: (S - 1) / (v M + S - 1) with v chunks.
//
// The price is messages, v times as many, and memory: compare what the ranks hold. `looped` runs the
// same chunks breadth first, all micro-batches through one and then through the next: the same bubble,
// but everything is held.

import { initProcessGroup } from '@tsrun/distributed'
import { compareSchedules, LAYERS, type Variant } from './lib/compare-schedules.ts'

const MICROBATCHES = 8

const group = await initProcessGroup()
const variants: Variant[] = [
  { schedule: '1f1b' },
  { schedule: 'interleaved', chunks: 2 },
  { schedule: 'interleaved', chunks: 4 },
  { schedule: 'looped', chunks: 2 },
]
// every chunk needs a layer
const possible = variants.filter(({ chunks = 1 }) => chunks * group.size <= LAYERS)
await compareSchedules(group, possible, MICROBATCHES)
await group.destroy()
