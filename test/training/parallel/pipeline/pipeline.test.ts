import { runWorld } from '@tsrun/distributed'
import { SpanRecorder } from '@tsrun/distributed/record'
import { schedule, type ScheduleName } from '@tsrun/training/planning'
import {
  Adam,
  countCorrect,
  crossEntropy,
  disposeModule,
  loadBackend,
  pipeline,
  SGD,
  tf,
  type Loss,
  type Module,
  type PipelineOptions,
  type Tensor,
} from '@tsrun/training'
import { failure } from '../support/failure.ts'
import { HIDDEN, examples, model, onRanks } from '../support/small-pipeline.ts'

beforeAll(async () => {
  await loadBackend('wasm')
})

describe('step()', () => {
  it('reduces the loss, and returns the same loss on every rank', async () => {
    const ranks = await runWorld({ size: 3 }, async (group) => {
      const optimizer = new Adam({ learningRate: 0.01 })
      const pipe = pipeline(model, group, { optimizer })
      const losses: number[] = []
      for (let step = 0; step < 30; step++) losses.push((await pipe.step(examples(32))).loss)
      pipe.dispose()
      optimizer.dispose()
      return losses
    })
    expect(ranks[1]).toEqual(ranks[0])
    expect(ranks[2]).toEqual(ranks[0])
    expect(ranks[0]!.at(-1)).toBeLessThan(ranks[0]![0]! / 2)
  })

  it('gives the same bits with every interleaving of the ranks', async () => {
    const train = (seed: number) =>
      runWorld({ size: 4, seed }, async (group) => {
        const pipe = pipeline(model, group, {
          microbatches: 4,
          optimizer: new SGD({ learningRate: 0.1 }),
        })
        const losses: number[] = []
        for (let step = 0; step < 3; step++) losses.push((await pipe.step(examples(8))).loss)
        pipe.dispose()
        return losses
      })
    const first = await train(0)
    for (let seed = 1; seed <= 12; seed++) expect(await train(seed)).toEqual(first)
  })

  it('reads inputs only on the first rank, and labels only on the last', async () => {
    const read: string[] = []
    await onRanks(3, { optimizer: new SGD({ learningRate: 0.1 }) }, async (pipe, { rank }) => {
      const { size, inputs, labels } = examples(8)
      await pipe.step({
        size,
        inputs: () => (read.push(`inputs ${rank}`), inputs()),
        labels: () => (read.push(`labels ${rank}`), labels()),
      })
    })
    expect(read.sort()).toEqual(['inputs 0', 'labels 2'])
  })

  it('does not dispose tensors of the caller', async () => {
    const { inputs, labels } = examples(8)
    const [x, y] = [inputs(), labels()]
    await onRanks(2, {}, async (pipe) => {
      const { gradients } = await pipe.forwardBackward({ inputs: x, labels: y })
      tf.dispose([...gradients.values()])
    })
    expect([x.isDisposed, y.isDisposed]).toEqual([false, false])
    tf.dispose([x, y])
  })
})

describe('a custom loss', () => {
  const perExample = (logits: Tensor, labels: Tensor): Tensor =>
    tf.neg(tf.sum(tf.mul(tf.logSoftmax(logits), tf.oneHot(labels, logits.shape[1]!)), -1))
  const mean: Loss = (logits, labels) => tf.mean(perExample(logits, labels))
  const sum: Loss = (logits, labels) => tf.sum(perExample(logits, labels))
  const declared = Object.assign((...call: Parameters<Loss>) => mean(...call), {
    reduction: 'mean' as const,
  })

  it.each([
    ['an undeclared mean', mean],
    ['an undeclared sum', sum],
    ['a declared mean', declared],
    ['the mean cross-entropy', crossEntropy],
  ])('trains like the default: %s', async (_, loss) => {
    const train = (options: PipelineOptions) =>
      onRanks(
        2,
        { ...options, microbatches: 3, optimizer: new SGD({ learningRate: 0.1 }) },
        async (pipe) => {
          const losses: number[] = []
          for (let step = 0; step < 3; step++) losses.push((await pipe.step(examples(8))).loss)
          return losses
        },
      )
    const [wanted] = await train({})
    const [losses] = await train({ loss })
    losses!.forEach((value, step) => {
      expect(value).toBeCloseTo(wanted![step]!, 5)
    })
  })
})

describe('evaluate()', () => {
  it.each([1, 2, 4])('gives the result of a single process, on %i ranks', async (size) => {
    const batch = examples(37)
    const whole = model.build()
    const [x, labels] = [batch.inputs(), batch.labels()]
    const logits = whole.forward(x)
    const wanted = {
      correct: countCorrect(logits, labels),
      loss: crossEntropy(logits, labels).dataSync()[0]!,
    }
    tf.dispose([x, labels, logits])
    disposeModule(whole)
    const before = tf.memory().numTensors
    for (const judged of await onRanks(size, {}, (pipe) => pipe.evaluate(batch))) {
      expect(judged).toMatchObject({ correct: wanted.correct, examples: 37 })
      expect(judged.accuracy).toBe(wanted.correct / 37)
      expect(judged.loss).toBeCloseTo(wanted.loss, 5)
    }
    expect(tf.memory().numTensors).toBeLessThanOrEqual(before)
  })

  it('can run before the first step and between steps', async () => {
    const losses = await onRanks(2, { optimizer: new SGD({ learningRate: 0.1 }) }, async (pipe) => {
      const before = await pipe.evaluate(examples(16))
      const { loss } = await pipe.step(examples(16))
      const after = await pipe.evaluate(examples(16))
      return [before.loss, loss, after.loss]
    })
    const [before, during, after] = losses[0]!
    expect(during).toBeCloseTo(before!, 5)
    expect(after).toBeLessThan(before!)
  })
})

describe('the messages of a pipeline', () => {
  it('carry each activation and gradient once: 2 x batch x width numbers per boundary', async () => {
    const spans = await onRanks(3, { microbatches: 4 }, async (pipe) => {
      const { gradients } = await pipe.forwardBackward(examples(11))
      tf.dispose([...gradients.values()])
      return pipe.recorder.spans()
    })
    const bytes = (rank: number, kind: string): number =>
      spans[rank]!.filter((span) => span.kind === kind).reduce((sum, span) => sum + span.bytes!, 0)
    const boundary = 11 * HIDDEN * 4
    expect([0, 1, 2].map((rank) => bytes(rank, 'send'))).toEqual([boundary, 2 * boundary, boundary])
    expect([0, 1, 2].map((rank) => bytes(rank, 'recv'))).toEqual([boundary, 2 * boundary, boundary])
  })

  it.each<ScheduleName>(['naive', 'gpipe', '1f1b'])(
    'follow the schedule %s, span by span',
    async (name) => {
      const recorded = await onRanks(2, { schedule: name, microbatches: 3 }, async (pipe) => {
        const { gradients } = await pipe.forwardBackward(examples(6))
        tf.dispose([...gradients.values()])
        return pipe.recorder.spans()
      })
      const { actions } = schedule(name, { stages: 2, microbatches: 3 })
      recorded.forEach((spans, rank) => {
        const compute = spans.filter(({ kind }) => kind === 'F' || kind === 'B')
        expect(compute.map(({ kind, stage, microbatch }) => ({ kind, stage, microbatch }))).toEqual(
          actions[rank],
        )
        expect(spans.every(({ start, end, rank: of }) => end >= start && of === rank)).toBe(true)
      })
    },
  )

  it('carry no gradient to a stage if it and all earlier stages lack parameters', async () => {
    const frozen = {
      layers: 4,
      slice: (from: number, to: number): Module => {
        const module = model.slice(from, to)
        return from >= 2 ? module : { parameters: [], forward: (x) => module.forward(x) }
      },
    }
    const run = (schedule: ScheduleName, size: number) =>
      runWorld({ size, seed: 1 }, async (group) => {
        const pipe = pipeline(frozen, group, { schedule, microbatches: 4 })
        await pipe.evaluate(examples(8))
        const { gradients } = await pipe.forwardBackward(examples(8))
        tf.dispose([...gradients.values()])
        const spans = pipe.recorder.spans()
        pipe.dispose()
        return { spans, names: [...gradients.keys()] }
      })
    for (const schedule of ['1f1b', 'zb-h1', 'gpipe'] as const) {
      const ranks = await run(schedule, 4)
      const sent = ranks.map(({ spans }) => spans.filter(({ kind }) => kind === 'send'))
      const back = sent.map((spans, rank) => spans.filter(({ peer }) => peer! < rank).length)
      expect(back).toEqual([0, 0, 0, 4])
      const received = ranks.map(
        ({ spans }, rank) =>
          spans.filter(({ kind, peer }) => kind === 'recv' && peer! > rank).length,
      )
      expect(received).toEqual([0, 0, 4, 0])
    }
    const ranks = await run('interleaved', 2)
    expect(ranks.flatMap(({ names }) => names).sort()).toEqual(
      [2, 3].flatMap((layer) => [`layers.${layer}.bias`, `layers.${layer}.weight`]),
    )
  })

  it('are recorded by the given recorder', async () => {
    const counts = await runWorld({ size: 2 }, async (group) => {
      const recorder = new SpanRecorder({ rank: group.rank, capacity: 8 })
      const pipe = pipeline(model, group, { recorder, optimizer: new SGD({ learningRate: 0.1 }) })
      await pipe.step(examples(8))
      pipe.dispose()
      return recorder.spans().length
    })
    expect(counts).toEqual([8, 8])
  })
})

describe('a pipeline refuses', () => {
  it('more stages than layers', async () => {
    await expect(onRanks(5, {}, () => Promise.resolve())).rejects.toEqual(
      failure('ERR_TSR_STAGES', /4 layers cannot be cut into 5/),
    )
  })

  it('a missing optimizer, zero micro-batches and an unknown schedule', async () => {
    await expect(onRanks(1, {}, (pipe) => pipe.step(examples(4)))).rejects.toEqual(
      failure('ERR_TSR_ARGUMENT', /optimizer/),
    )
    for (const options of [{ microbatches: 0 }, { schedule: 'zigzag' as ScheduleName }]) {
      await expect(onRanks(1, options, () => Promise.resolve())).rejects.toEqual(
        failure('ERR_TSR_ARGUMENT'),
      )
    }
  })

  it('a batch whose size is missing or wrong', async () => {
    const { inputs, labels } = examples(4)
    await expect(
      onRanks(1, {}, (pipe) => pipe.forwardBackward({ inputs, labels })),
    ).rejects.toEqual(failure('ERR_TSR_ARGUMENT', /batch.size/))
    await expect(
      onRanks(1, {}, (pipe) => pipe.forwardBackward({ size: 5, inputs, labels })),
    ).rejects.toEqual(failure('ERR_TSR_ARGUMENT', /batch.inputs is a tensor of shape \[4, 8\]/))
  })
})

describe('a module without a backward pass of its own', () => {
  it('can be a stage of a pipeline, which records it on the tape', async () => {
    const square: Module = { parameters: [], forward: (x) => tf.square(x) }
    const squares = { layers: 2, slice: () => square }
    const results = await runWorld({ size: 2 }, async (group) => {
      const loss = (outputs: Parameters<typeof tf.sum>[0]) => tf.sum(outputs)
      const pipe = pipeline(squares, group, { loss, microbatches: 2 })
      const labels = () => tf.zeros([2], 'int32')
      return await pipe.forwardBackward({
        size: 2,
        inputs: () =>
          tf.tensor2d([
            [1, 2],
            [3, 4],
          ]),
        labels,
      })
    })
    expect(results.map(({ loss }) => loss)).toEqual([177, 177])
  })
})
