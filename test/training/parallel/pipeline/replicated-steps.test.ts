import { initDeviceMesh, runWorld, type ProcessGroup } from '@tsrun/distributed'
import { gpt } from '@tsrun/models'
import { type ScheduleName } from '@tsrun/training/planning'
import {
  clipGradients,
  dataParallel,
  disposeModule,
  fullyShard,
  loadBackend,
  pipeline,
  record,
  SGD,
  shardedMLP,
  summedCrossEntropy,
  tf,
  type Pipeline,
  type Tensor,
} from '@tsrun/training'
import { failure } from '../support/failure.ts'
import { exampleBatch, excess, parameterValues, type Values } from '../support/reference.ts'

const [INPUTS, CLASSES, BATCH, STEPS] = [8, 3, 12, 4]
const model = shardedMLP({ layers: 4, inputs: INPUTS, hidden: 10, outputs: CLASSES })
const tiedModel = gpt({
  ...{ layers: 4, width: 8, heads: 2, block: 4, vocabulary: 7, seed: 3 },
  tied: true,
})
const MAX_NORM = 0.05

beforeAll(async () => {
  await loadBackend('wasm')
})

type Examples = (step: number) => { inputs: () => Tensor; labels: () => Tensor }

const features: Examples = (step) => exampleBatch(step, BATCH, INPUTS, CLASSES)
const text: Examples = (step) => {
  const tokens = (shift: number) => () =>
    tf.tensor2d(
      Array.from({ length: BATCH * 4 }, (_, at) => ((at + shift) * 5 + step * 3) % 7),
      [BATCH, 4],
      'int32',
    )
  return { inputs: tokens(0), labels: tokens(1) }
}

/** Rows [from, to) of the batch of a step. */
function part(examples: Examples, step: number, from: number, to: number) {
  const rows = (make: () => Tensor) => () => tf.tidy(() => tf.slice(make(), from, to - from))
  const { inputs, labels } = examples(step)
  return { size: to - from, inputs: rows(inputs), labels: rows(labels) }
}

interface Seen {
  readonly losses: number[]
  readonly norms: number[]
  readonly parameters: Values
}

async function trainSingle(recipe: typeof model | typeof tiedModel, examples: Examples) {
  const module = recipe.build()
  const optimizer = new SGD({ learningRate: 0.1, momentum: 0.9 })
  const norms: number[] = []
  for (let step = 0; step < STEPS; step++) {
    const { inputs, labels } = examples(step)
    const [x, y, scale] = [inputs(), labels(), tf.scalar(1 / BATCH)]
    const forward = (h: Tensor) => summedCrossEntropy(module.forward(h), y)
    const recording = record(forward, x, module.parameters, { needsInputGradient: false })
    const gradients = new Map<string, Tensor>()
    recording.backward(scale, ({ name }, gradient) => gradients.set(name, gradient))
    recording.dispose()
    norms.push(await clipGradients(module.parameters, gradients, { maxNorm: MAX_NORM }))
    optimizer.step(module.parameters, gradients)
    tf.dispose([x, y, scale])
  }
  const parameters = parameterValues(module)
  disposeModule(module)
  optimizer.dispose()
  return { norms, parameters }
}

interface Layout {
  readonly schedule: ScheduleName
  readonly recipe?: typeof model | typeof tiedModel
  readonly examples?: Examples
  readonly from?: number
  readonly replicate: (pipe: Pipeline, dp: ProcessGroup) => Promise<{ dispose(): void }>
}

async function trainReplicas(layout: Layout): Promise<Seen[]> {
  const { schedule, replicate, recipe = model, examples = features, from = BATCH / 2 } = layout
  return await runWorld({ size: 4, seed: 6 }, async (world) => {
    const mesh = await initDeviceMesh({ dp: 2, pp: 2 }, world)
    const optimizer = new SGD({ learningRate: 0.1, momentum: 0.9 })
    const clip = { maxNorm: MAX_NORM }
    const options = { schedule, optimizer, microbatches: 3, clip }
    const pipe = pipeline(recipe, mesh.pp, options)
    const replica = await replicate(pipe, mesh.dp)
    const [losses, norms]: [number[], number[]] = [[], []]
    const rows = mesh.dp.rank === 0 ? ([0, from] as const) : ([from, BATCH] as const)
    for (let step = 0; step < STEPS; step++) {
      const { loss, norm } = await pipe.step(part(examples, step, ...rows))
      losses.push(loss)
      norms.push(norm!)
    }
    if ('gather' in replica) await (replica as { gather(): Promise<void> }).gather()
    const parameters = parameterValues(pipe)
    replica.dispose()
    pipe.dispose()
    optimizer.dispose()
    return { losses, norms, parameters }
  })
}

const byStage = (stage: 1 | 2 | 3) => (pipe: Pipeline, group: ProcessGroup) =>
  fullyShard(pipe, group, { stage })

describe('replicas of a pipeline', () => {
  const layouts: [string, Layout][] = [
    ['averaged, 1f1b', { schedule: '1f1b', replicate: (pipe, dp) => dataParallel(pipe, dp) }],
    ['averaged, looped', { schedule: 'looped', replicate: (pipe, dp) => dataParallel(pipe, dp) }],
    [
      'by the number of examples, zb-h1',
      {
        schedule: 'zb-h1',
        from: 5,
        replicate: (pipe, dp) => dataParallel(pipe, dp, { reduction: 'token' }),
      },
    ],
    ['ZeRO stage 1', { schedule: '1f1b', replicate: byStage(1) }],
    ['ZeRO stage 2', { schedule: 'gpipe', replicate: byStage(2) }],
    ['ZeRO stage 3', { schedule: 'zb-h1', replicate: byStage(3) }],
    [
      'averaged, with a table that both ranks have',
      {
        schedule: '1f1b',
        recipe: tiedModel,
        examples: text,
        replicate: (pipe, dp) => dataParallel(pipe, dp),
      },
    ],
  ]
  it.each(layouts)('make the steps of a single process: %s', async (_, layout) => {
    const wanted = await trainSingle(layout.recipe ?? model, layout.examples ?? features)
    const before = tf.memory().numTensors
    const ranks = await trainReplicas(layout)
    for (const replica of [ranks.slice(0, 2), ranks.slice(2)]) {
      const parameters = Object.assign({}, ...replica.map((rank) => rank.parameters)) as Values
      expect(excess(parameters, wanted.parameters)).toBeLessThanOrEqual(0)
      for (const { norms } of replica) {
        norms.forEach((norm, step) => {
          expect(norm / wanted.norms[step]!).toBeCloseTo(1, 4)
        })
      }
    }
    expect(tf.memory().numTensors).toBe(before)
  })

  it('train with local gradients after dispose(), and refuse to be replicated twice', async () => {
    await runWorld({ size: 4, seed: 1 }, async (world) => {
      const mesh = await initDeviceMesh({ dp: 2, pp: 2 }, world)
      const pipe = pipeline(model, mesh.pp, { optimizer: new SGD({ learningRate: 0.1 }) })
      const replica = await dataParallel(pipe, mesh.dp)
      await expect(dataParallel(pipe, mesh.dp)).rejects.toEqual(
        failure('ERR_TSR_ARGUMENT', /already averaged/),
      )
      replica.dispose()
      const { loss } = await pipe.step(part(features, 0, 0, 4 + mesh.dp.rank))
      expect(loss).toBeGreaterThan(0)
      pipe.dispose()
    })
  })
})

it('a gradient listener is called in the last backward pass of its stage, with the same bits', async () => {
  for (const schedule of ['1f1b', 'zb-h1', 'interleaved', 'looped'] as const) {
    await runWorld({ size: 2, seed: 4 }, async (group) => {
      const pipe = pipeline(tiedModel, group, { schedule, microbatches: 3 })
      const batch = part(text, 0, 0, BATCH)
      const { gradients } = await pipe.forwardBackward(batch)
      const heard = new Map<string, Float32Array>()
      const mark = pipe.recorder.recorded
      let early = 0
      const result = await pipe.forwardBackward(batch, ({ name }, gradient) => {
        expect(heard.has(name)).toBe(false)
        heard.set(name, gradient.dataSync<'float32'>().slice())
        gradient.dispose()
        const ended = pipe.recorder.spans(mark).filter(({ kind }) => 'FBIW'.includes(kind))
        if (ended.length < 3 * pipe.chunks.length * (schedule === 'zb-h1' ? 3 : 2)) early++
      })
      expect(result.gradients.size).toBe(0)
      expect([...heard.keys()].sort()).toEqual([...gradients.keys()].sort())
      for (const [name, values] of heard) {
        expect(values).toEqual(gradients.get(name)!.dataSync())
      }
      // all but the shared table, which waits for the other rank
      expect(early).toBe(heard.size - 1)
      tf.dispose([...gradients.values()])
      pipe.dispose()
    })
  }
})
