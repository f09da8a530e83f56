import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import { GPT, gptPlan } from '@tsrun/models'
import {
  columnParallel,
  dataParallel,
  disposeModule,
  GELU,
  Linear,
  loadBackend,
  parallelize,
  pipeline,
  rowParallel,
  Sequential,
  sequenceParallel,
  shardedMLP,
  tf,
  vocabParallel,
  type Module,
  type ParallelPlan,
} from '@tsrun/training'
import { failure } from '../support/failure.ts'
import { onEach } from '../support/on-each.ts'

const sizes = { vocabulary: 12, block: 8, width: 12, heads: 3, layers: 2 }

beforeAll(() => loadBackend('wasm'))

/** What `parallelize` throws. */
function errorOf(model: Module, plan: ParallelPlan, group: ProcessGroup): unknown {
  try {
    return parallelize(model, plan, group)
  } catch (failed) {
    return failed
  } finally {
    disposeModule(model)
  }
}

describe('parallelize', () => {
  it('gives each rank its part of every tensor that the plan shards', async () => {
    const whole = new GPT(sizes)
    const before = tf.memory().numTensors
    const ranks = await onEach(3, (group) => {
      const model = parallelize(new GPT(sizes), gptPlan(), group)
      const parts = model.parameters.map(({ name, shape, shard, value }) => ({
        name,
        shape,
        shard,
        values: [...value.dataSync()],
      }))
      disposeModule(model)
      return parts
    })
    expect(tf.memory().numTensors).toBe(before)
    for (const [i, { name, shape, value }] of whole.parameters.entries()) {
      const parts = ranks.map((parameters) => parameters[i]!)
      const tensors = parts.map((part) => {
        expect(part.name).toBe(name)
        expect(part.shard?.shape ?? part.shape).toEqual(shape)
        return tf.tensor(part.values, [...part.shape])
      })
      const axis = parts[0]!.shard?.axis
      expect(axis !== undefined).toBe(/wte|lm_head|c_fc|c_attn|c_proj.weight/.test(name))
      const joined = axis === undefined ? tensors[0]! : tf.concat(tensors, axis)
      expect(joined.dataSync()).toEqual(value.dataSync())
      parts.forEach(({ shard, shape: own }, rank) => {
        if (shard !== undefined) expect(shard.offset).toBe(rank * own[shard.axis]!)
      })
    }
    disposeModule(whole)
  })

  it('shards a tied table once', async () => {
    const [model] = await onEach(3, (group) =>
      parallelize(new GPT({ ...sizes, tied: true }), gptPlan(), group),
    )
    const names = model!.parameters.map(({ name }) => name)
    expect(names.filter((name) => name === 'wte.weight')).toHaveLength(1)
    expect(new Set(names).size).toBe(names.length)
  })

  it.each<[string, number, ParallelPlan, RegExp]>([
    ['an unknown name', 2, { 'h.*.attn.c_atn': columnParallel() }, /h\.\*\.attn\.c_atn/],
    [
      'heads that do not divide',
      2,
      { 'h.*.attn.c_attn': columnParallel() },
      /c_attn.* one of 3 heads; .* 2 ranks/,
    ],
    ['more ranks than words', 13, { wte: vocabParallel() }, /wte\.weight/],
    ['half of a tied table', 3, { wte: vocabParallel() }, /no style for lm_head.*wte\.weight/],
    ['rows of three layers in one', 3, { 'h.*.attn.c_attn': rowParallel() }, /h\.0\.attn\.c_attn/],
    ['columns of a norm', 3, { ln_f: columnParallel() }, /columnParallel for ln_f/],
    ['words of a norm', 3, { ln_f: vocabParallel() }, /vocabParallel for ln_f/],
    ['positions of a layer', 3, { 'h.0.mlp.c_fc': sequenceParallel() }, /sequenceParallel for/],
  ])('refuses %s', async (_, size, plan, message) => {
    const errors = await onEach(size, (group) => {
      try {
        parallelize(new GPT({ ...sizes, tied: true }), plan, group)
        return undefined
      } catch (error) {
        return error
      }
    })
    for (const error of errors) expect(error).toEqual(failure('ERR_TSR_ARGUMENT', message))
  })

  it('refuses names in the plan of a recipe that no rank of the pipeline finds', async () => {
    const recipe = shardedMLP({ layers: 4, inputs: 4, hidden: 6, outputs: 2 })
    const batch = {
      size: 2,
      inputs: () => tf.ones([2, 4]),
      labels: () => tf.zeros([2], 'int32'),
    }
    const run = (size: number, plan: ParallelPlan) =>
      runWorld({ size: size + 1 }, async (world) => {
        // a group of one rank shares nothing, and blocks nowhere
        const [one, group] = [
          (await world.split(world.rank))!,
          (await world.split(world.rank < size ? 0 : 1))!,
        ]
        if (world.rank === size) return undefined
        const shared = parallelize(
          parallelize(recipe, plan, one),
          { 'layers.0': rowParallel() },
          one,
        )
        const pipe = pipeline(shared, group, { microbatches: 1 })
        const error = await pipe.forwardBackward(batch).then(
          ({ gradients }) => {
            tf.dispose([...gradients.values()])
          },
          (failed: unknown) => failed,
        )
        pipe.dispose()
        return error
      })
    for (const size of [1, 2, 3]) {
      const all = { 'layers.1': columnParallel(), 'layers.3': rowParallel() }
      expect(await run(size, all)).toEqual(Array.from({ length: size + 1 }, () => undefined))
      const errors = await run(size, { ...all, 'layer.2': columnParallel() })
      for (const error of errors.slice(0, size)) {
        expect(error).toEqual(
          failure('ERR_TSR_ARGUMENT', /plan is layer\.2; .*layers\.0, layers\.1.*, layers\.3/),
        )
      }
    }
  })

  it.each<[string, ParallelPlan]>([
    ['an unsharded layer', { 'layers.0': columnParallel({ gather: 'partial' }) }],
    [
      'a layer by rows',
      {
        'layers.0': columnParallel({ gather: 'partial' }),
        'layers.1': rowParallel(),
      },
    ],
    ['the end of the model', { 'layers.*': columnParallel({ gather: 'partial' }) }],
  ])('refuses to sum gradients that are already complete, before %s', async (_, plan) => {
    const [error] = await onEach(2, (group) => {
      const model = shardedMLP({ layers: 2, inputs: 4, hidden: 6, outputs: 2 }).build()
      return errorOf(model, plan, group)
    })
    expect(error).toEqual(failure('ERR_TSR_ARGUMENT', /gather: 'partial' for layers\.[01]/))
  })

  it('names a layer with two keys by its first key', async () => {
    const plan = { first: columnParallel({ gather: 'partial' }) }
    const [error] = await onEach(2, (group) => {
      const first = new Linear({ name: 'first', inputs: 4, outputs: 4 })
      const gelu = new GELU()
      const model = new Sequential({ first, next: gelu, again: gelu })
      return errorOf(model, plan, group)
    })
    expect(error).toEqual(failure('ERR_TSR_ARGUMENT', /for first, followed by next;/))
  })

  it('does not change a model in a group of one rank', async () => {
    await onEach(1, (group) => {
      const model = new GPT(sizes)
      const { layers, parameters } = model
      parallelize(model, gptPlan({ sequence: true }), group)
      expect(model.layers).toEqual(layers)
      expect(model.parameters).toEqual(parameters)
      disposeModule(model)
    })
  })

  it('refuses a model that is replicated, until its replica is disposed', async () => {
    const plan = { 'layers.0': columnParallel() }
    const errors = await runWorld({ size: 2 }, async (group) => {
      const model = shardedMLP({ layers: 2, inputs: 4, hidden: 6, outputs: 2 }).build()
      const replica = await dataParallel(model, group)
      try {
        return parallelize(model, plan, group)
      } catch (failed) {
        replica.dispose()
        parallelize(model, plan, group)
        disposeModule(model)
        return failed
      }
    })
    for (const error of errors) {
      expect(error).toEqual(failure('ERR_TSR_ARGUMENT', /parallelize before dataParallel/))
    }
  })

  it('shards the layers of a network in place', async () => {
    await onEach(2, (group) => {
      const model = shardedMLP({ layers: 2, inputs: 4, hidden: 6, outputs: 2 }).build()
      const same = parallelize(model, { 'layers.0': columnParallel() }, group)
      expect(same).toBe(model)
      expect(model.parameters.map(({ shape }) => shape)).toEqual([[4, 3], [3], [6, 2], [2]])
      disposeModule(model)
    })
  })
})
