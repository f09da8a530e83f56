// Step 4: the naive pipeline.
//
//   npx tsrun --nproc auto examples/04-naive.ts
//   npx tsrun --nproc auto examples/04-naive.ts --overlap off    (messages move only while a rank waits)
//   npx tsrun --nproc auto examples/04-naive.ts --stages 8       (only says what eight stages promise)
//   npx tsrun --nproc auto examples/04-naive.ts --messages       (prints what each rank sends)
//
// The manual split of step 2, now between processes. The layers are cut so that all ranks have about the
// same work: the first layer is as much as two others, so four ranks have 3, 4, 4 and 5 of the 16.
// Activations are sent to the next rank, gradients to the previous one. A batch is cut into
// micro-batches, and one micro-batch is finished before the next begins. So only one rank at a time has
// work to do. On four ranks:
//
//   rank 0  F0 .  .  .  .  .  .  B0 F1 ...
//   rank 1  .  F0 .  .  .  .  B0 .  .
//   rank 2  .  .  F0 .  .  B0 .  .  .
//   rank 3  .  .  .  F0 B0 .  .  .  .
//
// With S stages, each is idle for (S - 1) / S of the time: 50 % with two, 75 % with four. The ranks
// together are no faster than one process. The only gain is that each holds only a part of the network.
//
// The lessons measure this share from the first forward to the last backward of a step, as the formula
// counts it. A rank is idle while it is in no pass. Cutting a micro-batch from the batch and copying what
// is sent belong to a pass; the time until a message has arrived does not.
//
// With `--overlap on`, messages move while a rank computes. That needs two cores for each rank.
//
// Read: docs/concepts.md#what-a-bubble-is. Exercises: examples/exercises.md#04-the-naive-pipeline

import { recvTensor } from '@tsrun/training'
import { runLesson } from './lib/lesson.ts'

await runLesson('04 naive', 'naive', async (stage, { group, microbatches, send }) => {
  for (let m = 0; m < microbatches; m++) {
    // Forward: the input comes from the data or from the previous rank, and the output goes to the next.
    const input = stage.isFirst
      ? undefined
      : await stage.wait(recvTensor(group, stage.shape, group.previous))
    await stage.forward(m, input, (output) => send(output, group.next))

    // Backward: the gradient comes from the loss or from the next rank, and goes to the previous one.
    const outputGradient = stage.isLast
      ? undefined
      : await stage.wait(recvTensor(group, stage.shape, group.next))
    await stage.backward(m, outputGradient, (inputGradient) => send(inputGradient, group.previous))
  }
})
