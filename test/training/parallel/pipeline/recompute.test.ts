import { initDeviceMesh, runWorld } from '@tsrun/distributed'
import { gpt } from '@tsrun/models'
import { parseSchedule, schedule } from '@tsrun/training/planning'
import {
  loadBackend,
  pipeline,
  SGD,
  shardedMLP,
  summedCrossEntropy,
  tf,
  trainer,
  type Batch,
  type Loss,
  type Module,
  type PipelineModel,
  type PipelineOptions,
  type Recompute,
} from '@tsrun/training'
import { failure } from '../support/failure.ts'
import { exampleBatch, values, type Values } from '../support/reference.ts'

const mlp = shardedMLP({ layers: 6, inputs: 8, hidden: 10, outputs: 3 })
const rows = { size: 9, ...exampleBatch(0, 9, 8, 3) }
const writer = gpt({ layers: 4, width: 8, heads: 2, block: 6, vocabulary: 11 })
const tokens = (shift: number) => () =>
  tf.tensor2d(
    Array.from({ length: 24 }, (_, at) => (at * 7 + shift) % 11),
    [4, 6],
    'int32',
  )
const text: Batch = { size: 4, inputs: tokens(0), labels: tokens(7) }

beforeAll(async () => {
  await loadBackend('wasm')
})

interface Passed {
  readonly gradients: Values
  readonly loss: number
  readonly peaks: readonly number[]
}

async function pass(
  model: PipelineModel,
  batch: Batch,
  size: number,
  options: PipelineOptions,
): Promise<Passed> {
  const ranks = await runWorld({ size, seed: 4 }, async (group) => {
    const own = typeof options.schedule === 'object'
    const pipe = pipeline(model, group, own ? options : { microbatches: 3, ...options })
    const { gradients, loss, peakInFlight } = await pipe.forwardBackward(batch)
    const taken = values(gradients)
    tf.dispose([...gradients.values()])
    pipe.dispose()
    return { taken, loss, peakInFlight }
  })
  return {
    gradients: Object.assign({}, ...ranks.map(({ taken }) => taken)) as Values,
    loss: ranks[0]!.loss,
    peaks: ranks.map(({ peakInFlight }) => peakInFlight),
  }
}

/** Counts the forwards of every slice. */
function counted(model: PipelineModel, counts: Map<number, number>): PipelineModel {
  const slice = (from: number, to: number): Module => {
    const module = model.slice(from, to)
    return {
      parameters: module.parameters,
      forward: (x) => {
        counts.set(from, (counts.get(from) ?? 0) + 1)
        return module.forward(x)
      },
    }
  }
  return { layers: model.layers, slice }
}

/** The layers 1 and 3 of both models, of different stages. */
const isOdd = (name: string) => /[13]$/.test(name)

describe('recompute', () => {
  const layouts: [string, number, PipelineOptions][] = [
    ['one rank', 1, { schedule: 'gpipe' }],
    ['gpipe', 3, { schedule: 'gpipe' }],
    ['1f1b', 3, { schedule: '1f1b' }],
    ['zb-h1, in halves', 3, { schedule: 'zb-h1' }],
    ['interleaved', 2, { schedule: 'interleaved' }],
    [
      'lists of your own',
      2,
      { schedule: parseSchedule('0F0 0F1 0I1 0B0 0W1\n1F0 1F1 1I1 1W1 1B0') },
    ],
  ]
  it.each(layouts)('does not change any bit of the results: %s', async (_, size, options) => {
    const before = tf.memory().numTensors
    for (const [model, batch] of [
      [mlp, rows],
      [writer, text],
    ] as const) {
      const wanted = await pass(model, batch, size, options)
      for (const recompute of [true, isOdd]) {
        expect(await pass(model, batch, size, { ...options, recompute })).toEqual(wanted)
      }
    }
    expect(tf.memory().numTensors).toBe(before)
  })

  it('repeats each forward pass, unless its backward pass follows immediately', async () => {
    const run = async (recompute: boolean): Promise<number[]> => {
      const counts = new Map<number, number>()
      await pass(counted(mlp, counts), rows, 3, { schedule: '1f1b', recompute })
      return [0, 2, 4].map((from) => counts.get(from)!)
    }
    expect(await run(false)).toEqual([3, 3, 3])
    // the last stage of 1F1B goes backward after each forward, the one before it once
    const { actions } = schedule('1f1b', { stages: 3, microbatches: 3 })
    const again = actions.map(
      (list) =>
        list.filter(
          ({ kind, microbatch }, at) => kind === 'F' && list[at + 1]?.microbatch !== microbatch,
        ).length,
    )
    expect(await run(true)).toEqual(again.map((count) => 3 + count))
    expect(again).toEqual([3, 3, 0])
  })
})

interface Heap {
  _malloc: (bytes: number) => number
  _free: (address: number) => void
}

/** Counts the bytes of memory that tensors take from now on. */
function watchHeap() {
  const { wasm } = tf.backend() as unknown as { wasm: Heap }
  const { _malloc: malloc, _free: free } = wasm
  const sizes = new Map<number, number>()
  wasm._malloc = (bytes) => {
    const address = malloc(bytes)
    sizes.set(address >>> 0, bytes)
    return address
  }
  wasm._free = (address) => {
    sizes.delete(address >>> 0)
    free(address)
  }
  return {
    bytes: () => [...sizes.values()].reduce((sum, bytes) => sum + bytes, 0),
    stop: () => Object.assign(wasm, { _malloc: malloc, _free: free }),
  }
}

describe('recompute with names of layers', () => {
  it.each([0, 3] as const)('keeps less for each layer that it names: zero %s', async (zero) => {
    const choices: readonly Recompute[] = [false, 'h.1', ['h.1', 'h.2'], 'h.*', true]
    const results = await runWorld({ size: 1, seed: 4 }, async (group) => {
      const measured: { held: number; losses: number[] }[] = []
      for (const recompute of choices) {
        let held = 0
        let liveBytes = () => 0
        const loss: Loss = (outputs, labels) => {
          held = liveBytes()
          return summedCrossEntropy(outputs, labels)
        }
        const run = await trainer(writer, {
          mesh: group,
          optimizer: new SGD({ learningRate: 0.5 }),
          loss: Object.assign(loss, { reduction: 'sum' as const }),
          zero,
          recompute,
        })
        const losses = [(await run.step(text)).loss]
        // Kernels take their scratch memory in the first step.
        const heap = watchHeap()
        liveBytes = heap.bytes
        for (let step = 0; step < 2; step++) losses.push((await run.step(text)).loss)
        heap.stop()
        run.dispose()
        measured.push({ held, losses })
      }
      return measured
    })
    const [runs] = results
    for (const [i, { held, losses }] of runs!.entries()) {
      expect(losses).toEqual(runs![0]!.losses)
      if (i > 0) expect(held).toBeLessThan(runs![i - 1]!.held)
    }
  })

  it.each([1, 2])('refuses a name that no layer has: %s ranks', async (size) => {
    await runWorld({ size, seed: 4 }, async (group) => {
      const mesh = await initDeviceMesh({ dp: 1, pp: size }, group)
      const start = async (recompute: Recompute) => {
        const run = await trainer(writer, {
          mesh,
          optimizer: new SGD({ learningRate: 0.5 }),
          recompute,
        })
        try {
          await run.step(text)
        } finally {
          run.dispose()
        }
      }
      await start(['h.0', 'h.3'])
      await expect(start(['h.0', 'h.4'])).rejects.toEqual(
        failure('ERR_TSR_ARGUMENT', /recompute is h.4; expected names of layers: wte, .*h.3, ln_f/),
      )
    })
  })
})
