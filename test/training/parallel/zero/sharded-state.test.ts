import { initDeviceMesh, runWorld, type ProcessGroup } from '@tsrun/distributed'
import {
  clipGradients,
  dataParallel,
  disposeModule,
  fullyShard,
  loadBackend,
  SGD,
  shardedMLP,
  summedCrossEntropy,
  tf,
  type FullyShardOptions,
} from '@tsrun/training'
import { errorOf } from '../../../distributed/support/outcome.ts'
import { excess, parameterValues, type Values } from '../support/reference.ts'
import { stepTraffic } from './support/traffic.ts'
import { build, part, recorded, runPass, shareOf, wholeValues } from './support/training.ts'

const stages = [1, 2, 3] as const

beforeAll(async () => {
  await loadBackend('wasm')
})

const sent = (group: ProcessGroup): number =>
  group.linkStatistics().reduce((sum, { bytesSent }) => sum + bytesSent, 0)

describe.each(stages)('ZeRO stage %i', (stage) => {
  it.each([
    { replicas: 1, options: {} },
    { replicas: 1, options: { wire: 'bfloat16' } },
    { replicas: 2, options: {} },
  ] as const)('sends as many bytes as the formula says: %j', async ({ replicas, options }) => {
    const ranks = 2
    await runWorld({ size: ranks * replicas, seed: 2 }, async (world) => {
      const mesh = await initDeviceMesh({ replicate: replicas, shard: ranks }, world)
      const module = build()
      const groups = replicas === 1 ? mesh.shard : { shard: mesh.shard, replicate: mesh.replicate }
      // a bucket a layer in all stages
      const sizes = { bucketBytes: 4 * (16 * 16 + 16), firstBucketBytes: 4 * (4 * 16 + 4) }
      const sharded = await fullyShard(module, groups, { stage, ...sizes, ...options })
      const layers = [16 * 4 + 4, 16 * 16 + 16, 16 * 16 + 16, 12 * 16 + 16]
      const gradientBytes = 'wire' in options ? 2 : 4
      const gathers = stage === 3 ? 2 : 1
      const formula = stepTraffic(stage, {
        buckets: layers,
        ranks,
        replicas,
        gradientBytes,
        gathers,
      })
      expect(sharded.traffic).toEqual(formula)
      const reduced = layers.reduce((sum, length) => sum + length, 0)
      // all but its own share of each scattered and gathered bucket, and half a share both ways
      const overReplicas = replicas > 1 ? (reduced / ranks) * gradientBytes : 0
      const wanted = (reduced * (gradientBytes + 4 * gathers)) / ranks + overReplicas
      const optimizer = new SGD({ learningRate: 0.1 })
      for (let step = 0; step < 3; step++) {
        const before = sent(world)
        await runPass(part(step, ...shareOf(world.rank, world.size)), (x) => sharded.record(x))
        await sharded.step(optimizer, await sharded.gradients())
        const headers = sent(world) - before - wanted
        expect(headers).toBeGreaterThan(0)
        expect(headers / 64).toBeLessThanOrEqual(4 * formula.collectives)
      }
      sharded.dispose()
      disposeModule(module)
    })
  })

  it('accumulates without sending gradients', async () => {
    await runWorld({ size: 2, seed: 2 }, async (group) => {
      const module = build()
      const sharded = await fullyShard(module, group, { stage })
      sharded.synchronizes = false
      const before = sent(group)
      await runPass(part(0, ...shareOf(group.rank, 2)), (x) => sharded.record(x))
      const gathered = stage === 3 ? (2 * 4 * (68 + 272 + 272 + 208)) / 2 : 0
      expect(sent(group) - before - gathered).toBeLessThan(stage === 3 ? 64 * 8 * 4 : 1)
      sharded.dispose()
      disposeModule(module)
    })
  })

  it('holds only its documented share of the state', async () => {
    await runWorld({ size: 2, seed: 2 }, async (group) => {
      const module = build()
      const numbers = module.parameters.reduce((sum, { value }) => sum + value.size, 0)
      const sharded = await fullyShard(module, group, { stage })
      await runPass(part(0, ...shareOf(group.rank, 2)), (x) => sharded.record(x))
      await sharded.step(new SGD({ learningRate: 0.1 }), await sharded.gradients())
      const { parameters, gradients } = sharded.memory
      const share = 4 * numbers
      expect(parameters).toBe(stage === 3 ? share / 2 : share)
      expect(gradients).toBe(stage === 1 ? share : share / 2)
      sharded.dispose()
      disposeModule(module)
    })
  })

  it('does not change frozen parameters, and names the unused ones', async () => {
    await runWorld({ size: 2, seed: 3 }, async (group) => {
      const module = build()
      const start = parameterValues(module)
      const frozen = ['layers.0.weight', 'layers.1.bias']
      const sharded = await fullyShard(module, group, { stage, frozen })
      await runPass(part(0, ...shareOf(group.rank, 2)), (x) => sharded.record(x))
      await sharded.step(new SGD({ learningRate: 0.1 }), await sharded.gradients())
      const end = await wholeValues(sharded)
      for (const [name, values] of Object.entries(start)) {
        const isSame = values.every((value, i) => value === end[name]![i])
        expect({ name, isSame }).toEqual({ name, isSame: frozen.includes(name) })
      }
      const error = await errorOf(() => sharded.gradients())
      expect(error).toMatchObject({ code: 'ERR_TSR_UNUSED_PARAMETERS' })
      expect(error?.message).toContain('layers.3.bias')
      sharded.dispose()

      const lenient = await fullyShard(build(), group, { stage, unused: 'zeros' })
      const gradients = await lenient.gradients()
      // no rank has used anything
      expect(gradients.size).toBe(0)
      await lenient.gather()
      lenient.dispose()
      disposeModule(lenient.module)
    })
  })

  it('divides by the number of examples if it differs between ranks', async () => {
    const bounds = [0, 5, 24]
    const train = async (group: ProcessGroup, whole: boolean): Promise<Values> => {
      const module = build()
      const rows = bounds.slice(group.rank) as [number, number]
      const optimizer = new SGD({ learningRate: 0.1 })
      if (whole) {
        const replica = await dataParallel(module, group, { reduction: 'token' })
        await runPass(
          part(0, ...rows),
          (x) => recorded(module, x, replica.onGradient),
          summedCrossEntropy,
        )
        optimizer.step(module.parameters, await replica.gradients(rows[1] - rows[0]))
        return parameterValues(module)
      }
      const sharded = await fullyShard(module, group, { stage, reduction: 'token' })
      await runPass(part(0, ...rows), (x) => sharded.record(x), summedCrossEntropy)
      expect(await errorOf(() => sharded.gradients())).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
      await sharded.step(optimizer, await sharded.gradients(rows[1] - rows[0]))
      return await wholeValues(sharded)
    }
    const wanted = await runWorld({ size: 2, seed: 4 }, (group) => train(group, true))
    expect(await runWorld({ size: 2, seed: 4 }, (group) => train(group, false))).toEqual(wanted)
  })

  it('has gradients of zero if no rank has an example', async () => {
    await runWorld({ size: 2 }, async (group) => {
      const options = { stage, reduction: 'token', unused: 'zeros' } as const
      const sharded = await fullyShard(build(), group, options)
      for (const gradient of (await sharded.gradients(0)).values()) {
        expect(gradient.every((value) => value === 0)).toBe(true)
      }
      await sharded.gather()
      sharded.dispose()
      disposeModule(sharded.module)
    })
  })

  it('clips by the norm over all shares', async () => {
    const norms = await runWorld({ size: 3, seed: 4 }, async (group) => {
      const module = build()
      const twin = build()
      const replica = await dataParallel(twin, group)
      const sharded = await fullyShard(module, group, { stage })
      const rows = shareOf(group.rank, 3)
      await runPass(part(0, ...rows), (x) => recorded(twin, x, replica.onGradient))
      await runPass(part(0, ...rows), (x) => sharded.record(x))
      const optimizer = new SGD({ learningRate: 0.1 })
      const whole = await replica.gradients()
      const wanted = await clipGradients(twin.parameters, whole, { maxNorm: 0.1 })
      optimizer.step(twin.parameters, whole)
      const gradients = await sharded.gradients()
      const norm = await clipGradients(sharded.shards, gradients, { maxNorm: 0.1, shard: group })
      await sharded.step(optimizer, gradients)
      expect(norm).toBeGreaterThan(0.1)
      expect(Math.abs(norm - wanted)).toBeLessThan(1e-6)
      expect(excess(await wholeValues(sharded), parameterValues(twin))).toBeLessThanOrEqual(0)
      return norm
    })
    expect(new Set(norms).size).toBe(1)
  })

  it('refuses a different model, and a gradient after the last one of a step', async () => {
    await runWorld({ size: 2, seed: 3 }, async (group) => {
      const hidden = group.rank === 0 ? 3 : 5
      const odd = shardedMLP({ layers: 2, inputs: 4, hidden, outputs: 2 }).build()
      const error = await errorOf(() => fullyShard(odd, group, { stage }))
      expect(error).toMatchObject({ code: 'ERR_TSR_REPLICA', facts: { rank: 1 } })
      const module = build()
      const refused = (options: FullyShardOptions) =>
        errorOf(() => fullyShard(module, group, { stage, ...options }))
      for (const options of [{ frozen: ['nobody'] }, { bucketBytes: 0 }, { stage: 4 as never }]) {
        expect(await refused(options)).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
      }
      const sharded = await fullyShard(module, group, { stage })
      await runPass(part(0, 0, 12), (x) => sharded.record(x))
      const again = await errorOf(() => runPass(part(0, 0, 12), (x) => sharded.record(x)))
      expect(again).toMatchObject({ code: 'ERR_TSR_GRADIENT_TWICE' })
    })
  })

  it('names its operation if another rank calls a different one', async () => {
    const errors = await runWorld({ size: 3, seed: 3 }, async (group) => {
      const module = build()
      const sharded = await fullyShard(module, group, { stage })
      const extra = new Float64Array(3)
      return await errorOf(async () => {
        await runPass(part(0, 0, 12), async (x) => {
          const recording = await sharded.record(x)
          if (group.rank === 1) await group.allReduce(extra)
          return recording
        })
        await sharded.gradients()
      })
    })
    const [first, other, last] = errors
    expect(other).toMatchObject({ code: 'ERR_TSR_MISMATCH' })
    for (const error of [first, last]) {
      expect(['ERR_TSR_MISMATCH', 'ERR_TSR_PEER_FAILED']).toContain(error?.code)
      const about = stage === 3 ? 'values of layers.3.bias' : 'gradients, bucket 0: layers.3.bias'
      expect(error?.message).toContain(about)
    }
  })
})

describe('sharded values', () => {
  it('throw when they are read, except between gather and release', async () => {
    await runWorld({ size: 2, seed: 4 }, async (group) => {
      const module = build()
      const start = parameterValues(module)
      const sharded = await fullyShard(module, group)
      const x = tf.zeros([1, 12])
      const error = await errorOf(async () => {
        await Promise.resolve(module.forward(x))
      })
      const code = 'ERR_TSR_SHARDED'
      expect(error).toMatchObject({ code })
      expect(error?.message).toContain('layers.0.weight')
      const { value } = module.parameters[0]!
      for (const read of [() => value.dataSync(), () => value.data(), () => tf.square(value)]) {
        expect(await errorOf(async () => await read())).toMatchObject({ code })
      }
      await sharded.gather()
      await sharded.gather()
      sharded.release()
      expect(parameterValues(module)).toEqual(start)
      // who holds them over a step sees the new ones
      await runPass(part(0, ...shareOf(group.rank, 2)), (input) => sharded.record(input))
      await sharded.step(new SGD({ learningRate: 0.1 }), await sharded.gradients())
      const held = parameterValues(module)
      expect(held).not.toEqual(start)
      sharded.release()
      expect(await wholeValues(sharded)).toEqual(held)
      expect(sharded.memory.parameters).toBe(sharded.memory.gradients)
      x.dispose()
      sharded.dispose()
      disposeModule(module)
    })
  })

  it('train with gradients of other passes', async () => {
    await runWorld({ size: 2, seed: 4 }, async (group) => {
      const module = build()
      const { parameters } = module
      const sharded = await fullyShard({ parameters }, group)
      const x = tf.zeros([1, 12])
      expect(await errorOf(() => sharded.record(x))).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
      await sharded.gather()
      await runPass(part(0, 0, 12), (input) => recorded(module, input, sharded.onGradient))
      sharded.release()
      expect((await sharded.gradients()).size).toBe(sharded.shards.length)
      x.dispose()
    })
  })
})
