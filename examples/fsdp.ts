// Training whose state is sharded over the ranks: ZeRO, or fully sharded data parallel training.
//
//   npx tsrun --nproc auto examples/fsdp.ts --zero 0     (replicas, to compare with)
//   npx tsrun --nproc auto examples/fsdp.ts              (stage 3)
//   npx tsrun --nproc auto examples/fsdp.ts --zero 1
//
// With Adam, a data parallel rank holds at least 16 bytes for each parameter: its value, its gradient and
// two moments. Each stage of ZeRO shards more of them: stage 1 the moments, stage 2 the gradients as well,
// and stage 3 the parameters as well. A layer is then gathered only while it computes.
//
// Each run trains the same GPT on the same batches of Moby Dick, with one stage only, because the peak
// memory of a process never falls. Compare two runs:
//
//   ledger    the bytes of parameters, gradients and moments that each rank held at most; `formula` is
//             what the stage promises. In stage 3 a rank holds a little more, because the next layer is
//             gathered while a layer computes
//   process   how much the process has grown since it began to train: also activations, buffers for
//             messages, compiled code, and what V8 has not collected yet
//   digest    a hash of all parameters at the end. On wasm and cpu it is the same for all stages: they
//             compute the same bits
//
// Read: docs/zero.md#the-stages. Exercises: examples/exercises.md#fsdp

import { createHash } from 'node:crypto'
import { formatTable } from '@tsrun/core'
import { gpt } from '@tsrun/models'
import * as training from '@tsrun/training'
import { choice, count, endWith, integer, jobFlags, positive, readFlags } from './lib/flags.ts'
import { mebibytes } from './lib/course.ts'
import { meshProblem } from './lib/gpt-run.ts'
import { startJob } from './lib/job.ts'
import { drawCurve, grouped, printResult, wrap } from './lib/output.ts'
import { Speed } from './lib/speed.ts'
import { describeUtilisation, pollUtilisation } from './lib/utilisation.ts'

const flags = readFlags({
  zero: choice(['0', '1', '2', '3'] as const, '3'),
  steps: count(40),
  batch: count(16),
  block: count(32),
  layers: count(12),
  heads: count(4),
  width: count(160),
  seed: integer(0),
  lr: positive(0.0005),
  ...jobFlags(),
})
const zero = Number(flags.zero) as 0 | training.ZeroStage
const { batch, block, layers, heads, width, seed, steps } = flags

const group = await startJob(flags)
const { rank, size } = group
const mesh = { dp: size, pp: 1, tp: 1, cp: 1, between: 'replicated' } as const
const problem = meshProblem({ ...flags, ...mesh }, size)
if (problem !== undefined) endWith(problem)
const book = training.mobyDick({ split: 'train' })

/** The most bytes that this process has had in memory. */
const peakOfProcess = (): number => 1024 * process.resourceUsage().maxRSS

const before = peakOfProcess()
const model = gpt({ layers, heads, width, block, seed }).build()
const units = model.layers.map((layer) => sizeOf(layer.parameters))
const parameters = sizeOf(model.parameters)
const optimizer = new training.Adam({ learningRate: flags.lr })
const run = await training.trainer(model, {
  mesh: group,
  zero,
  optimizer,
  bucketBytes: 2 ** 20,
  firstBucketBytes: 2 ** 20,
  // The sum over more than two ranks depends on the order.
  deterministic: true,
})
const speed = new Speed()
const poll = pollUtilisation()
const options = { batch, block, seed, share: run.share }
const { losses } = await run.fit((step) => training.textBatch(book, step, options), {
  steps,
  unit: { tokens: block },
  callbacks: [speed],
})
const utilisation = await group.allGatherObject(await poll.stop())
// Read the memory before the digest, which gathers all parameters.
const grown = peakOfProcess() - before
let moments = 0
for (const { values } of (await optimizer.state()).values()) {
  for (const { byteLength } of Object.values(values)) moments += byteLength
}
// A replica holds all values and gradients: 8 bytes for each parameter.
const held = run.memory?.peak ?? 8 * parameters
const digest = await run.gathered(digestOfParameters)
const ranks = await group.allGatherObject({ held, moments, grown, digest })
const isSame = ranks.every((each) => each.digest === digest)
if (!isSame) process.exitCode = 1

if (rank === 0) {
  const formulaOf = (stage: 0 | training.ZeroStage) =>
    training.stateBytes(stage, { parameters, ranks: size, gathered: Math.max(...units) })
  const formula = formulaOf(zero)
  const rows = ranks.map((each, at) => {
    const parts = [each.held, each.moments, each.held + each.moments, formula, each.grown]
    return [`rank ${at}`, ...parts.map(mebibytes)]
  })
  const headers = ['MiB', 'values, gradients', 'moments', 'ledger', 'formula', 'process']
  const [first, last] = [losses[0]!, losses.at(-1)!]
  const { collectives, bytes: sent } = run.traffic ?? { collectives: 0, bytes: 0 }
  console.log(`\n${drawCurve(losses)}\n`)
  console.log(`loss ${first.toFixed(3)} in step 1, ${last.toFixed(3)} in step ${steps}`)
  const way = zero === 0 ? 'replicas' : `ZeRO stage ${zero}`
  console.log(`${grouped(parameters)} parameters in ${layers} blocks, ${way}\n`)
  console.log(`${formatTable([headers, ...rows], 'right').join('\n')}\n`)
  const whole = mebibytes(formulaOf(0))
  console.log(wrap(`A replica would hold ${whole} MiB of values, gradients and moments.`))
  const milliseconds = (1000 * batch) / speed.examplesPerSecond
  console.log(
    wrap(
      `${collectives} collectives of ${grouped(sent)} bytes in a step of ` +
        `${milliseconds.toFixed(0)} ms`,
    ),
  )
  console.log(describeUtilisation(utilisation))
  console.log(isSame ? `digest ${digest}` : 'the parameters of the ranks DIFFER')
  printResult({
    ranks: size,
    zero,
    backend: training.tf.getBackend(),
    firstLoss: first,
    lastLoss: last,
    bytes: Math.max(...ranks.map((each) => each.held + each.moments)),
    formula,
    process: Math.max(...ranks.map((each) => each.grown)),
    collectives,
    traffic: sent,
    digest,
  })
}
run.dispose()
await group.destroy()

function sizeOf(of: readonly training.Parameter[]): number {
  return of.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0)
}

async function digestOfParameters(): Promise<string> {
  const hash = createHash('sha256')
  for (const { value } of model.parameters) hash.update(await value.data<'float32'>())
  return hash.digest('hex').slice(0, 12)
}
