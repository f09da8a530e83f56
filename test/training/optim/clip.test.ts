import { initDeviceMesh, runWorld, type ProcessGroup } from '@tsrun/distributed'
import { clipGradients, loadBackend, tf, type Parameter, type Tensor } from '@tsrun/training'

type Listed = Pick<Parameter, 'name' | 'shape' | 'shard' | 'countedElsewhere'>

/** The gradients of a model of two layers, by hand: 3 and 4 here, 12 and 84 there. */
const whole = new Map([
  ['a.weight', Float32Array.of(3, 0, 0, 4)],
  ['a.bias', Float32Array.of(0, 12)],
  ['b.weight', Float32Array.of(-84, 0)],
])
const NORM = 85
const listed = (name: string): Listed => ({ name, shape: [whole.get(name)!.length] })
const all = [...whole.keys()].map(listed)
const copies = () => new Map(Array.from(whole, ([name, values]) => [name, values.slice()]))
const tensors = () =>
  new Map<string, Tensor>(Array.from(whole, ([name, values]) => [name, tf.tensor1d(values)]))

describe.each(['wasm', 'cpu'] as const)('clipped gradients on %s', (backend) => {
  beforeAll(() => loadBackend(backend))

  it('are scaled to the maximum norm, as arrays and as tensors', async () => {
    const arrays = copies()
    expect(await clipGradients(all, arrays, { maxNorm: 8.5 })).toBe(NORM)
    const gradients = tensors()
    const shared = tf.clone(gradients.get('a.weight')!)
    const before = tf.memory().numTensors
    expect(await clipGradients(all, gradients, { maxNorm: 8.5 })).toBe(NORM)
    expect(tf.memory().numTensors).toBe(before)
    for (const [name, values] of whole) {
      const factor = Math.fround(8.5 / (NORM + 1e-6))
      expect(arrays.get(name)).toEqual(values.map((it) => it * factor))
      expect(gradients.get(name)!.dataSync()).toEqual(arrays.get(name))
      gradients.get(name)!.dispose()
    }
    expect([...shared.dataSync()]).toEqual([3, 0, 0, 4])
    shared.dispose()
  })

  it('are unchanged if the norm is below the maximum, infinite or NaN', async () => {
    const arrays = copies()
    expect(await clipGradients(all, arrays, { maxNorm: 86 })).toBe(NORM)
    expect(arrays).toEqual(whole)
    for (const broken of [NaN, Infinity]) {
      const gradients = new Map([...whole, ['a.bias', Float32Array.of(broken, 1)]])
      expect(await clipGradients(all, gradients, { maxNorm: 1 })).toBe(broken)
      expect([...gradients.get('a.bias')!]).toEqual([broken, 1])
    }
  })

  it('include each given parameter once', async () => {
    const arrays = copies()
    const parameters = ['a.weight', 'a.bias', 'a.bias', 'without'].map((name) => ({
      name,
      shape: [],
    }))
    expect(await clipGradients(parameters, arrays, { maxNorm: 1 })).toBe(13)
    expect(arrays.get('b.weight')).toEqual(whole.get('b.weight'))
    expect(await clipGradients([], new Map<string, Tensor>(), { maxNorm: 1 })).toBe(0)
  })

  it('are only measured if the maximum norm is infinite', async () => {
    const gradients = copies()
    expect(await clipGradients(all, gradients, { maxNorm: Infinity })).toBe(NORM)
    expect(gradients).toEqual(whole)
  })

  it('are measured by a norm that is summed in double precision', async () => {
    const many = new Float32Array(2 ** 20).fill(1)
    many[0] = 2 ** 13
    const parameter = { name: 'many', shape: [2 ** 20] }
    const norm = await clipGradients([parameter], new Map([['many', many]]), { maxNorm: 1 })
    expect(norm).toBe(Math.sqrt(2 ** 26 + 2 ** 20 - 1))
  })
})

it.each([
  [{ maxNorm: 0 }, /maxNorm is 0; expected a number above 0/],
  [{ maxNorm: Number.NaN }, /maxNorm is NaN/],
  [
    { maxNorm: 1, pp: undefined } as never,
    /with the unknown key "pp"; expected only maxNorm, tensor/,
  ],
  [{ maxNorm: '1' } as never, /maxNorm is "1"; expected a number/],
])('gradient clipping refuses the options %p', async (options, message) => {
  const clipped = clipGradients(all, copies(), options)
  await expect(clipped).rejects.toThrow(message)
  await expect(clipped).rejects.toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
})

it('gradient clipping refuses sharded parameters without the group of the other shards', async () => {
  const part = { name: 'b.weight', shape: [1], shard: { shape: [2], axis: 0, offset: 0 } }
  await expect(clipGradients([part], copies(), { maxNorm: 1 })).rejects.toThrow(
    /tensor is undefined; expected the group whose ranks share b.weight.*ERR_TSR_ARGUMENT/,
  )
  const flat = { name: 'b.weight', shape: [1], range: { parameter: part.shard, from: 1, to: 2 } }
  await expect(clipGradients([flat], copies(), { maxNorm: 1 })).rejects.toThrow(
    /shard is undefined; expected the group whose ranks share b.weight, which fullyShard was given/,
  )
  const unshared = { ...part, shape: [2] }
  expect(await clipGradients([unshared], copies(), { maxNorm: 100 })).toBe(84)
})

/** How many operations each group has run before this one. */
async function positions(groups: readonly ProcessGroup[]): Promise<number[]> {
  const barriers = groups.map((group) => group.barrier())
  await Promise.all(barriers)
  return barriers.map(({ sequence }) => sequence)
}

describe('the norm of a sharded model', () => {
  /** Rank `tp` of two has half of each weight, all of a bias. */
  function partOf(names: readonly string[], tp: number): [Listed[], Map<string, Float32Array>] {
    const gradients = new Map<string, Float32Array>()
    const parameters = names.map((name) => {
      const values = whole.get(name)!
      if (name.endsWith('bias')) {
        gradients.set(name, values.slice())
        return { name, shape: [values.length] }
      }
      const length = values.length / 2
      gradients.set(name, values.slice(tp * length, (tp + 1) * length))
      const shard = { shape: [values.length], axis: 0, offset: tp * length }
      return { name, shape: [length], shard }
    })
    return [parameters, gradients]
  }

  it('counts replicated parameters once: tensor parallel', async () => {
    const clipped = await runWorld({ size: 2 }, async (group) => {
      const [parameters, gradients] = partOf([...whole.keys()], group.rank)
      const total = await clipGradients(parameters, gradients, {
        maxNorm: 1,
        tensor: group,
      })
      return { total, bias: gradients.get('a.bias')![1] }
    })
    const bias = Math.fround(12 * Math.fround(1 / (NORM + 1e-6)))
    expect(clipped).toEqual([
      { total: NORM, bias },
      { total: NORM, bias },
    ])
  })

  it('counts tied parameters once: pipeline', async () => {
    const clipped = await runWorld({ size: 2 }, async (group) => {
      const names = group.rank === 0 ? ['b.weight', 'a.bias'] : ['a.weight', 'b.weight']
      const parameters = names.map(listed)
      if (group.rank === 0) parameters[0]!.countedElsewhere = true
      const gradients = copies()
      const options = { maxNorm: 1, pipeline: group }
      const total = await clipGradients(parameters, gradients, options)
      return { total, scaled: gradients.get('b.weight')![0] }
    })
    const scaled = Math.fround(-84 * Math.fround(1 / (NORM + 1e-6)))
    expect(clipped).toEqual([
      { total: NORM, scaled },
      { total: NORM, scaled },
    ])
  })

  it('is right for dp x pp x tp, with one collective for each axis', async () => {
    const clipped = await runWorld({ size: 8 }, async (world) => {
      const mesh = await initDeviceMesh({ dp: 2, pp: 2, tp: 2 }, world)
      const names = mesh.pp.rank === 0 ? ['a.weight', 'a.bias'] : ['b.weight']
      const [parameters, gradients] = partOf(names, mesh.tp.rank)
      const axes = [mesh.dp, mesh.pp, mesh.tp]
      const before = await positions(axes)
      const options = { maxNorm: 1, tensor: mesh.tp, pipeline: mesh.pp }
      const total = await clipGradients(parameters, gradients, options)
      const calls = (await positions(axes)).map((position, i) => position - before[i]! - 1)
      return { total, calls }
    })
    for (const rank of clipped) expect(rank).toEqual({ total: NORM, calls: [0, 1, 1] })
  })

  it('is right for shards of ZeRO', async () => {
    const flat = [...whole.values()].flatMap((values) => [...values])
    const clipped = await runWorld({ size: 4 }, async (group) => {
      const [from, to] = [2 * group.rank, 2 * group.rank + 2]
      const range = { parameter: { shape: [flat.length] }, from, to }
      const gradients = new Map([['all', Float32Array.from(flat.slice(from, to))]])
      const parameters = [{ name: 'all', shape: [2], range }]
      return await clipGradients(parameters, gradients, { maxNorm: 1, shard: group })
    })
    expect(clipped).toEqual([NORM, NORM, NORM, NORM])
  })
})
