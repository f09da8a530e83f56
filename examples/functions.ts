// Parallel programs as functions: everything starts from one script, without the tsrun command.
//
//   node --import tsx examples/functions.ts --ranks 2
//
//   runWorld   runs the ranks in this process, for tests and to try a parallel program. Blocking calls
//              do not work, so the backward pass of tensor parallelism does not.
//   spawn      starts the ranks as processes, as tsrun does. A function is sent as its source code, so it
//              must not use variables of its surroundings.
//
// Data, pipeline and tensor parallel training of the same network on the same batches must reach the
// losses of a single process.
//
// Read: docs/spawn.md

import { formatTable } from '@tsrun/core'
import { initProcessGroup, runWorld, type ProcessGroup } from '@tsrun/distributed'
import { spawn } from '@tsrun/launcher'
import { count, integer, positive, readFlags } from './lib/flags.ts'
import { loadShown } from './lib/job.ts'
import { singleProcess, trainDataParallel, trainPipeline } from './lib/parallel-functions.ts'
import { printResult } from './lib/output.ts'

const flags = readFlags({
  ranks: count(2),
  steps: count(5),
  batch: count(32),
  width: count(64),
  seed: integer(0),
  lr: positive(0.1),
})
const { ranks } = flags

// If tsrun starts this script, rank 0 does all of it.
const outer = await initProcessGroup()
if (outer.rank === 0) {
  await loadShown(outer.rank)

  const sums = await runWorld({ size: ranks }, async (group) => {
    const buffer = Float32Array.of(group.rank + 1)
    await group.allReduce(buffer)
    return buffer[0]!
  })

  const whole = await singleProcess(flags)
  const within = (train: (group: ProcessGroup, plan: typeof flags) => Promise<number[]>) =>
    runWorld({ size: ranks, memory: 16 * 1024 * 1024 }, (group) => train(group, flags))
  const losses = {
    data: await within(trainDataParallel),
    pipeline: await within(trainPipeline),
    tensor: await spawn<number[]>(new URL('./lib/parallel-functions.ts', import.meta.url), {
      export: 'tensorRank',
      nproc: ranks,
      args: [flags],
    }),
  }
  const squares = await spawn((rank: number, base: number) => (base + rank) ** 2, {
    nproc: ranks,
    args: [10],
  })

  const errors = Object.fromEntries(
    Object.entries(losses).map(([kind, ofRanks]) => [kind, errorOf(ofRanks, whole)]),
  )
  const rows = Object.entries(losses).map(([kind, [first]]) => [
    kind,
    kind === 'tensor' ? 'spawn' : 'runWorld',
    first!.at(-1)!.toFixed(4),
    errors[kind]!.toExponential(1),
  ])
  const headers = ['parallel', 'started by', 'last loss', 'difference']
  console.log(formatTable([headers, ...rows], 'right').join('\n'))
  printResult({
    ...{ ranks, sum: sums[0]!, squares, loss: whole.at(-1)! },
    ...{ dataError: errors['data']!, pipelineError: errors['pipeline']! },
    tensorError: errors['tensor']!,
  })
}
await outer.barrier()
await outer.destroy()

/** The largest difference of the loss of any rank at any step. */
function errorOf(ofRanks: readonly number[][], whole: readonly number[]): number {
  const differences = ofRanks.flatMap((own) => own.map((loss, i) => Math.abs(loss - whole[i]!)))
  return Math.max(...differences)
}
