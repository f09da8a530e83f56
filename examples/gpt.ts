// A GPT that learns to write Moby Dick byte by byte, on any mesh of ranks.
//
//   npx tsrun --nproc 2 examples/gpt.ts                 (2 replicas)
//   npx tsrun --nproc 2 examples/gpt.ts --pp 2          (a pipeline of 2 stages)
//   npx tsrun --nproc 2 examples/gpt.ts --tp 2          (2 ranks that split every layer)
//   npx tsrun --nproc 2 examples/gpt.ts --cp 2          (2 ranks that split every sequence)
//   npx tsrun --nproc 8 examples/gpt.ts --pp 2 --tp 2   (2 replicas of both)
//   npx tsrun --nproc 2 examples/gpt.ts --zero 2        (2 replicas that shard gradients and AdamW's state)
//   npx tsrun --nproc 2 examples/gpt.ts --log runs      (with metrics and the text for TensorBoard)
//   node --import tsx examples/gpt.ts                   (the same script in one process)
//
// On every mesh, the ranks draw the same batches, start from the same weights and reach the same loss as
// a single process, and at the end they write a text together. The ranks that the flags leave over are
// replicas.
//
// Read: docs/training.md#the-layout. Exercises: examples/exercises.md#gpt

import { generate, gpt, gptPlan } from '@tsrun/models'
import * as training from '@tsrun/training'
import {
  choice,
  count,
  endWith,
  integer,
  jobFlags,
  positive,
  readFlags,
  text,
} from './lib/flags.ts'
import { drawCurve, grouped, percent, printResult, wrap } from './lib/output.ts'
import { measurePeak, meshProblem } from './lib/gpt-run.ts'
import { startJob } from './lib/job.ts'
import { Speed } from './lib/speed.ts'
import { describeUtilisation, pollUtilisation } from './lib/utilisation.ts'

const flags = readFlags({
  // 0: all remaining ranks.
  dp: integer(0),
  pp: count(1),
  tp: count(1),
  cp: count(1),
  between: choice(['replicated', 'sequence'] as const, 'replicated'),
  zero: choice(['0', '1', '2', '3'] as const, '0'),
  steps: count(200),
  batch: count(8),
  block: count(64),
  layers: count(4),
  heads: count(4),
  width: count(64),
  microbatches: count(2),
  schedule: choice(['1f1b', 'gpipe', 'zb-h1', 'interleaved', 'naive'] as const, '1f1b'),
  seed: integer(0),
  lr: positive(0.003),
  sample: integer(200),
  // A folder for TensorBoard.
  log: text(''),
  ...jobFlags(),
})
const { batch, block, layers, heads, width, seed, steps } = flags

const world = await startJob(flags)
const { pp, tp, cp } = flags
const dp = flags.dp || Math.max(1, Math.floor(world.size / (pp * cp * tp)))
const problem = meshProblem({ ...flags, dp }, world.size)
if (problem !== undefined) endWith(problem)

const run = await training.trainer(gpt({ layers, heads, width, block, seed }), {
  mesh: { dp, pp, cp, tp },
  plan: gptPlan({ sequence: flags.between === 'sequence' }),
  schedule: flags.schedule,
  microbatches: flags.microbatches,
  zero: ({ 0: 0, 1: 1, 2: 2, 3: 3 } as const)[flags.zero],
  clip: 1,
  optimizer: new training.AdamW({
    withoutDecay: ['**.bias', '**.ln_1.*', '**.ln_2.*', 'ln_f.*'],
  }),
  learningRate: training.warmupCosine({
    peak: flags.lr,
    warmup: Math.ceil(steps / 20),
    total: steps,
    minimum: flags.lr / 10,
  }),
})
const book = training.mobyDick({ split: 'train' })
const unseen = training.mobyDick({ split: 'validation' })
const positions = training.zigzagPositions(block, run.layout.cp)
const options = { batch, block, share: run.share, positions }
// Forward and backward take 6 operations for each weight and token, plus those of the attention.
const weights = 12 * layers * width ** 2 + book.vocabulary * width
const flops = block * (6 * weights + 12 * layers * width * block)
const log = flags.log === '' ? [] : [training.tensorBoard(flags.log)]
const speed = new Speed()
const poll = pollUtilisation()
const { losses, evaluations } = await run.fit(
  (step) => training.textBatch(book, step, { ...options, seed }),
  {
    steps,
    evaluate: { data: () => training.textBatches(unseen, { ...options, batch: 4 * batch }, 8) },
    ...{ flops, log, unit: { tokens: block }, callbacks: [speed] },
  },
)
const utilisation = await world.allGatherObject(await poll.stop())
const peak = await measurePeak(world)

const prompt = 'The whale '
const written = await generate(run, Buffer.from(prompt), {
  ...{ maxTokens: flags.sample, temperature: 0.8, seed },
})
if (run.rank === 0) {
  const sample = prompt + Buffer.from(written).toString()
  for (const each of log) {
    each.text('sample', sample, steps)
    await each.close()
  }
  const tokensPerSecond = speed.examplesPerSecond * block
  const mfu = (speed.examplesPerSecond * flops) / peak
  const { loss: validation, accuracy } = evaluations.at(-1)!
  console.log(`\n${drawCurve(losses)}\n`)
  if (flags.sample > 0) console.log(`${sample}\n`)
  const mesh = `dp ${dp}, pp ${pp}, cp ${cp}, tp ${tp}`
  const reached = `${percent(mfu)} of the ${(peak / 1e9).toFixed(1)} GFLOP/s that matMul reaches`
  console.log(
    wrap(
      `${mesh}: validation loss ${validation.toFixed(4)}, ${grouped(tokensPerSecond)} tokens/s, ` +
        `${reached} on all ranks at once (MFU)`,
    ),
  )
  console.log(describeUtilisation(utilisation))
  const figures = { loss: losses.at(-1)!, validation, accuracy, tokensPerSecond, mfu }
  printResult({ ranks: world.size, dp, pp, cp, tp, ...figures }, 7)
}
run.dispose()
await world.destroy()
