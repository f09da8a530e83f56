// Step 5: GPipe (Huang et al., 2018).
//
//   npx tsrun --nproc auto examples/05-gpipe.ts
//   npx tsrun --nproc auto examples/05-gpipe.ts --overlap off    (messages move only while a rank waits)
//   npx tsrun --nproc auto examples/05-gpipe.ts --stages 8       (only says what eight stages promise)
//   npx tsrun --nproc auto examples/05-gpipe.ts --messages       (prints what each rank sends)
//
// A rank does not have to wait for the gradient of micro-batch 0 before it starts micro-batch 1. So all
// forwards run first, then all backwards: while rank 1 has micro-batch 0, rank 0 already works on
// micro-batch 1. The pipeline fills, runs full, and drains. On four ranks:
//
//   rank 0  F0 F1 F2 F3 .  .  .  .  .  .  B0 B1 B2 B3
//   rank 1  .  F0 F1 F2 F3 .  .  .  .  B0 B1 B2 B3 .
//   rank 2  .  .  F0 F1 F2 F3 .  .  B0 B1 B2 B3 .  .
//   rank 3  .  .  .  F0 F1 F2 F3 B0 B1 B2 B3 .  .  .
//
// With S stages and M micro-batches, the idle share falls to (S - 1) / (M + S - 1): with eight
// micro-batches 11 % on two ranks, 27 % on four.
// The cost is memory: all M micro-batches are in flight, and each holds its activations.
//
// With `--overlap on`, messages move while a rank computes. That needs two cores for each rank.
//
// Read: docs/pipeline.md#the-schedules. Exercises: examples/exercises.md#05-gpipe

import { recvTensor } from '@tsrun/training'
import { runLesson } from './lib/lesson.ts'

await runLesson('05 gpipe', 'gpipe', async (stage, { group, microbatches, send }) => {
  // Sends are not awaited here: a rank continues while its messages are sent. Between two ranks,
  // messages arrive in the order in which they were sent, so micro-batches cannot be confused.
  const sends: Promise<void>[] = []

  for (let m = 0; m < microbatches; m++) {
    const input = stage.isFirst
      ? undefined
      : await stage.wait(recvTensor(group, stage.shape, group.previous))
    sends.push(stage.forward(m, input, (output) => send(output, group.next)))
  }

  for (let m = 0; m < microbatches; m++) {
    const outputGradient = stage.isLast
      ? undefined
      : await stage.wait(recvTensor(group, stage.shape, group.next))
    sends.push(stage.backward(m, outputGradient, (gradient) => send(gradient, group.previous)))
  }

  await Promise.all(sends)
})
