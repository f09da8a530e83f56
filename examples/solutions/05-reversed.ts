// Lesson 05, question 2: backward passes in the opposite order.
//
//   npx tsrun --nproc 2 examples/solutions/05-reversed.ts
//   REVERSED=last npx tsrun --nproc 2 examples/solutions/05-reversed.ts
//
// The last micro-batch begins the backward passes, as in GPipe's paper. Messages carry no number of their
// micro-batch: they are matched by their order. With REVERSED=last, only the last rank uses the new
// order, and the other ranks take each gradient for that of another micro-batch.

import { recvTensor } from '@tsrun/training'
import { runLesson } from '../lib/lesson.ts'

await runLesson('05 reversed', 'gpipe', async (stage, { group, microbatches, send }) => {
  const isReversed = process.env['REVERSED'] === 'last' ? stage.isLast : true
  const sends: Promise<void>[] = []

  for (let m = 0; m < microbatches; m++) {
    const input = stage.isFirst
      ? undefined
      : await stage.wait(recvTensor(group, stage.shape, group.previous))
    sends.push(stage.forward(m, input, (output) => send(output, group.next)))
  }

  for (let i = 0; i < microbatches; i++) {
    const m = isReversed ? microbatches - 1 - i : i
    const outputGradient = stage.isLast
      ? undefined
      : await stage.wait(recvTensor(group, stage.shape, group.next))
    sends.push(stage.backward(m, outputGradient, (gradient) => send(gradient, group.previous)))
  }

  await Promise.all(sends)
})
