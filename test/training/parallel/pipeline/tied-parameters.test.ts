import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { initDeviceMesh, runWorld, type ProcessGroup } from '@tsrun/distributed'
import { gpt } from '@tsrun/models'
import { parseSchedule } from '@tsrun/training/planning'
import {
  clipGradients,
  dataParallel,
  disposeModule,
  fullyShard,
  loadBackend,
  loadCheckpoint,
  pipeline,
  saveCheckpoint,
  SGD,
  tf,
  type Pipeline,
  type PipelineModel,
  type PipelineOptions,
} from '@tsrun/training'
import { failure } from '../support/failure.ts'
import {
  excess,
  expectSame,
  parameterValues,
  singleProcessStep,
  values,
  type Snapshot,
} from '../support/reference.ts'

const [STEPS, ROWS, LENGTH, TOKENS] = [8, 4, 6, 11]
const sizes = { layers: 4, width: 16, heads: 2, block: LENGTH, vocabulary: TOKENS, seed: 3 }
const model = gpt({ ...sizes, tied: true })

/** Rows [from, to) of the batch of a step. */
function text(step: number, from = 0, to = ROWS) {
  const tokens = (shift: number) => () =>
    tf.tensor2d(
      Array.from({ length: (to - from) * LENGTH }, (_, at) => {
        return ((at + from * LENGTH + shift) * 7 + step * 3) % TOKENS
      }),
      [to - from, LENGTH],
      'int32',
    )
  return { size: to - from, inputs: tokens(0), labels: tokens(1) }
}

let single: Snapshot[]
beforeAll(async () => {
  await loadBackend('wasm')
  single = trainSingle()
})

function trainSingle(): Snapshot[] {
  const module = model.build()
  const optimizer = new SGD({ learningRate: 0.01 })
  const steps = Array.from({ length: STEPS }, (_, step) =>
    singleProcessStep(module, text(step), optimizer),
  )
  disposeModule(module)
  return steps
}

function normOf({ gradients }: Snapshot): number {
  const squares = Object.values(gradients).flatMap((array) => Array.from(array, (g) => g * g))
  return Math.sqrt(squares.reduce((sum, square) => sum + square, 0))
}

async function train(size: number, options: PipelineOptions): Promise<Snapshot[][]> {
  return await runWorld({ size, seed: 5 }, async (group) => {
    const pipe = pipeline(model, group, { microbatches: 2, ...options })
    const optimizer = new SGD({ learningRate: 0.01 })
    const steps: Snapshot[] = []
    for (let step = 0; step < STEPS; step++) {
      const { loss, gradients } = await pipe.forwardBackward(text(step))
      const taken = values(gradients)
      optimizer.step(pipe.parameters, gradients)
      steps.push({ loss, gradients: taken, parameters: parameterValues(pipe) })
    }
    pipe.dispose()
    return steps
  })
}

describe('a tied table of embedding and head', () => {
  const layouts: [string, number, PipelineOptions][] = [
    ['one rank, one stage', 1, {}],
    ['one rank, two stages', 1, { schedule: 'interleaved' }],
    ['two ranks', 2, { schedule: '1f1b' }],
    ['three ranks, in halves', 3, { schedule: 'zb-h1' }],
    ['two ranks of two stages', 2, { schedule: 'interleaved', recompute: true }],
    [
      'a V, both on one rank',
      2,
      {
        schedule: parseSchedule('0F0 0F1 3F0 3B0 3F1 3B1 0B0 0B1\n1F0 2F0 1F1 2F1 2B0 1B0 2B1 1B1'),
      },
    ],
  ]
  it.each(layouts)('trains as in a single process: %s', async (_, size, options) => {
    const before = tf.memory().numTensors
    const ranks = await train(size, options)
    single.forEach((wanted, step) => {
      const seen = ranks.map((steps) => steps[step]!)
      for (const { loss } of seen) expect(loss).toBeCloseTo(wanted.loss, 4)
      for (const part of ['gradients', 'parameters'] as const) {
        const merged = Object.assign({}, ...seen.map((rank) => rank[part])) as Snapshot[typeof part]
        expect(excess(merged, wanted[part])).toBeLessThanOrEqual(0)
        // to the bit on both ranks
        const tables = seen.flatMap((rank) => rank[part]['wte.weight'] ?? [])
        for (const table of tables) expectSame(table, tables[0])
      }
    })
    expect(tf.memory().numTensors).toBe(before)
  })

  it('starts with the values of the first stage', async () => {
    const ranks = await runWorld({ size: 2 }, async (group) => {
      const other = gpt({ ...sizes, tied: true, seed: group.rank })
      const pipe = pipeline(other, group, { optimizer: new SGD({ learningRate: 0.01 }) })
      await pipe.step(text(0))
      const table = parameterValues(pipe)['wte.weight']
      pipe.dispose()
      return table
    })
    expect(ranks[1]).toEqual(ranks[0])
  })

  it.each([1, 2, 3] as const)('is equal in all stages of ZeRO %i', async (stage) => {
    const [first, ...others] = await runWorld({ size: 4 }, async (world) => {
      const mesh = await initDeviceMesh({ dp: 2, pp: 2 }, world)
      const other = gpt({ ...sizes, tied: true, seed: mesh.pp.rank })
      const pipe = pipeline(other, mesh.pp, { optimizer: new SGD({ learningRate: 0.01 }) })
      const sharded = await fullyShard(pipe, mesh.dp, { stage })
      await pipe.step(text(0))
      await sharded.gather()
      return parameterValues(pipe)['wte.weight']
    })
    for (const table of others) expect(table).toEqual(first)
  })

  it('is clipped once, and averaged over replicas', async () => {
    const norms = await runWorld({ size: 4, seed: 1 }, async (world) => {
      const mesh = await initDeviceMesh({ dp: 2, pp: 2 }, world)
      const pipe = pipeline(model, mesh.pp, { microbatches: 2 })
      const replica = await dataParallel(pipe, mesh.dp)
      const { gradients } = await pipe.forwardBackward(
        text(0, 2 * mesh.dp.rank, 2 + 2 * mesh.dp.rank),
      )
      for (const parameter of pipe.parameters) {
        replica.onGradient(parameter, gradients.get(parameter.name)!)
      }
      const averaged = await replica.gradients()
      const limits = { maxNorm: 1e9, pipeline: mesh.pp }
      const norm = await clipGradients(pipe.parameters, averaged, limits)
      replica.dispose()
      pipe.dispose()
      return norm
    })
    for (const norm of norms) expect(norm / normOf(single[0]!)).toBeCloseTo(1, 5)
  })

  it.each([
    ['if the first rank does not have it', 3, '1F0 1B0\n0F0 0B0\n2F0 2B0'],
    ['in two chunks of a rank', 2, '0F0 2F0 2B0 0B0\n1F0 3F0 3B0 1B0'],
  ])('is clipped once: %s', async (_, size, lists) => {
    const norms = await runWorld({ size, seed: 4 }, async (group) => {
      const pipe = pipeline(model, group, { schedule: parseSchedule(lists) })
      const { gradients } = await pipe.forwardBackward(text(0))
      // of all chunks, a table may be in the list twice
      const parameters = pipe.modules.flatMap((module) => module.parameters)
      const norm = await clipGradients(parameters, gradients, { maxNorm: 1e9, pipeline: group })
      pipe.dispose()
      return norm
    })
    for (const norm of norms) expect(norm / normOf(single[0]!)).toBeCloseTo(1, 5)
  })

  it('is saved once, and loads in any layout', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'tied-'))
    try {
      const run = (size: number, use: (pipe: Pipeline, group: ProcessGroup) => Promise<unknown>) =>
        runWorld({ size, seed: 2 }, async (group) => {
          const optimizer = new SGD({ learningRate: 0.1 })
          const pipe = pipeline(model, group, { microbatches: 2, optimizer })
          await use(pipe, group)
          const { loss } = await pipe.evaluate(text(9))
          pipe.dispose()
          return loss
        })
      const [wanted] = await run(2, async (pipe, group) => {
        await pipe.step(text(0))
        await (
          await saveCheckpoint(directory, { model: pipe, step: 1 }, group)
        ).done
      })
      for (const size of [1, 3]) {
        const [loss] = await run(size, (pipe, group) =>
          loadCheckpoint(directory, { model: pipe }, group),
        )
        expect(loss).toBeCloseTo(wanted!, 5)
      }
    } finally {
      rmSync(directory, { recursive: true })
    }
  })

  it('is refused if it has different shapes in the stages', async () => {
    const wrong: PipelineModel = {
      layers: 2,
      slice: (from) => ({
        parameters: [{ name: 'table', shape: [2 + from], value: tf.ones([2 + from]) }],
        forward: (x) => x,
      }),
    }
    for (const [size, options] of [
      [1, { schedule: 'looped' }],
      [2, {}],
    ] as const) {
      const run = runWorld({ size }, async (group) => {
        await pipeline(wrong, group, options).forwardBackward(text(0))
      })
      await expect(run).rejects.toEqual(
        failure('ERR_TSR_ARGUMENT', /table is one of shape \[3\] in one stage, and of \[2\]/),
      )
    }
  })
})
