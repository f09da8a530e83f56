import { jest } from '@jest/globals'
import { initDeviceMesh, runWorld } from '@tsrun/distributed'
import { SpanRecorder, type Span, type SpanKind } from '@tsrun/distributed/record'
import {
  columnParallel,
  loadBackend,
  rowParallel,
  SGD,
  shardedMLP,
  tf,
  trainer,
  type TrainerOptions,
} from '@tsrun/training'

beforeAll(() => loadBackend('wasm'))
afterEach(() => jest.restoreAllMocks())

const WIDTH = 6
const recipe = shardedMLP({ layers: 4, inputs: WIDTH, hidden: 8, outputs: 4, seed: 5 })
const plan = Object.fromEntries(
  [0, 1, 2, 3].map((i) => [`layers.${i}`, i % 2 === 0 ? columnParallel() : rowParallel()]),
)

interface Layout {
  readonly shape: Readonly<Partial<Record<'dp' | 'pp' | 'tp', number>>>
  readonly options?: TrainerOptions
  /** Beside passes and the update. */
  readonly kinds: readonly SpanKind[]
}

const averaged = ['pack', 'reduce', 'call', 'collective'] as const
const layouts: Readonly<Record<string, Layout>> = {
  'one process': { shape: { dp: 1 }, kinds: [] },
  replicas: { shape: { dp: 2 }, kinds: averaged },
  'ZeRO 1': { shape: { dp: 2 }, options: { zero: 1 }, kinds: [...averaged, 'unpack'] },
  'ZeRO 2': { shape: { dp: 2 }, options: { zero: 2 }, kinds: [...averaged, 'alloc', 'unpack'] },
  'ZeRO 3': { shape: { dp: 2 }, options: { zero: 3 }, kinds: [...averaged, 'alloc', 'unpack'] },
  'shared layers': {
    shape: { tp: 2 },
    options: { plan },
    kinds: ['pack', 'unpack', 'alloc', 'call', 'collective'],
  },
  stages: {
    shape: { pp: 2 },
    options: { microbatches: 4 },
    kinds: ['pack', 'unpack', 'call', 'send', 'recv', 'collective'],
  },
}

/** The spans of the second step on each rank. */
async function record({ shape, options }: Layout, isRecorded = true): Promise<Span[][]> {
  const size = Object.values(shape).reduce((product, ranks) => product * ranks, 1)
  return await runWorld({ size, seed: 1 }, async (group) => {
    const recorder = new SpanRecorder({ rank: group.rank })
    if (isRecorded) group.recordSpans(recorder)
    const run = await trainer(recipe, {
      ...options,
      mesh: await initDeviceMesh(shape as { dp: number }, group),
      optimizer: new SGD({ learningRate: 0.1 }),
    })
    const rows = 8 / run.share[1]
    const [inputs, labels] = [tf.ones([rows, WIDTH]), tf.zeros([rows], 'int32')]
    await run.step({ inputs, labels })
    const mark = recorder.recorded
    await run.step({ inputs, labels })
    const spans = recorder.spans(mark)
    run.dispose()
    tf.dispose([inputs, labels])
    return spans
  })
}

describe.each(Object.entries(layouts))('a trace of %s', (_, layout) => {
  it('records passes, copies, operations and the update', async () => {
    for (const spans of await record(layout)) {
      const kinds = new Set(spans.map(({ kind }) => kind))
      expect([...kinds]).toEqual(expect.arrayContaining(['batch', 'F', 'optimizer']))
      expect(kinds.has('B') || kinds.has('I')).toBe(true)
      expect([...kinds]).toEqual(expect.arrayContaining([...layout.kinds]))
      if (layout.kinds.length === 0) expect(kinds.has('call')).toBe(false)
      for (const { start, end } of spans) expect(end).toBeGreaterThanOrEqual(start)
    }
  })

  it('names collectives in the same way on all ranks', async () => {
    const ranks = await record(layout)
    const names = ranks.map((spans) =>
      spans
        .filter(({ kind }) => kind === 'collective')
        .map(({ name, group, sequence }) => `${group} ${sequence} ${name}`)
        .sort(),
    )
    for (const own of names) expect(own).toEqual(names[0])
  })

  it('is empty without a recorder', async () => {
    const all = jest.spyOn(SpanRecorder.prototype, 'record')
    const ranks = await record(layout, false)
    expect(ranks.flat()).toEqual([])
    // A pipeline has a recorder of its own, for its report.
    expect(all.mock.calls.length === 0).toBe(layout.shape.pp === undefined)
  })
})

it('a trace counts the bytes of gradients copied into buckets, each once', async () => {
  const { parameters } = recipe.build()
  const bytes = 4 * parameters.reduce((sum, { value }) => sum + value.size, 0)
  for (const spans of await record(layouts['replicas']!)) {
    const packed = spans.filter(({ kind }) => kind === 'pack')
    expect(packed.reduce((sum, span) => sum + span.bytes!, 0)).toBe(bytes)
  }
})
