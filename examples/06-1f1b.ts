// Step 6: one forward, one backward (PipeDream-Flush; Narayanan et al., 2021).
//
//   npx tsrun --nproc auto examples/06-1f1b.ts
//   npx tsrun --nproc auto examples/06-1f1b.ts --overlap off    (messages move only while a rank waits)
//   npx tsrun --nproc auto examples/06-1f1b.ts --stages 8       (only says what eight stages promise)
//   npx tsrun --nproc auto examples/06-1f1b.ts --messages       (prints what each rank sends)
//
// The last rank can run the backward of micro-batch 0 right after its forward, without waiting for the
// others. So each rank warms up with one forward for every rank after it, then alternates one forward
// and one backward, and ends with the remaining backwards. On four ranks:
//
//   rank 0  F0 F1 F2 F3 .  .  .  B0 F4 B1 F5 B2 ...
//   rank 1  .  F0 F1 F2 .  .  B0 F3 B1 F4 B2 ...
//   rank 2  .  .  F0 F1 .  B0 F2 B1 F3 B2 ...
//   rank 3  .  .  .  F0 B0 F1 B1 F2 B2 ...
//
// It is idle for as long as GPipe, (S - 1) / (M + S - 1). But a backward frees activations before the
// next forward needs memory: rank r holds at most S - r micro-batches, however many there are.
//
// With `--overlap on`, messages move while a rank computes. That needs two cores for each rank.
//
// Read: docs/questions.md#why-is-1f1b-not-faster-than-gpipe. Exercises: examples/exercises.md#06-1f1b

import { recvTensor } from '@tsrun/training'
import { runLesson } from './lib/lesson.ts'

await runLesson('06 1f1b', '1f1b', async (stage, { group, microbatches, send }) => {
  // In the middle of the pipeline, rank r sends F to r + 1 while r + 1 sends B to r. If each waited for
  // the other to receive, both would wait forever: sends must not block the schedule.
  const sends: Promise<void>[] = []

  const forward = async (m: number): Promise<void> => {
    const input = stage.isFirst
      ? undefined
      : await stage.wait(recvTensor(group, stage.shape, group.previous))
    sends.push(stage.forward(m, input, (output) => send(output, group.next)))
  }

  const backward = async (m: number): Promise<void> => {
    const outputGradient = stage.isLast
      ? undefined
      : await stage.wait(recvTensor(group, stage.shape, group.next))
    sends.push(stage.backward(m, outputGradient, (gradient) => send(gradient, group.previous)))
  }

  const warmUp = Math.min(group.size - group.rank - 1, microbatches)
  const steady = microbatches - warmUp

  for (let m = 0; m < warmUp; m++) await forward(m)
  for (let m = 0; m < steady; m++) {
    await forward(m + warmUp)
    await backward(m)
  }
  for (let m = steady; m < microbatches; m++) await backward(m)

  await Promise.all(sends)
})
