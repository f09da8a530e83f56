import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import {
  allGatherTensor,
  allReduceTensor,
  allToAllTensor,
  broadcastTensor,
  gatherTensor,
  loadBackend,
  reduceScatterTensor,
  reduceTensor,
  scatterTensor,
  tf,
  type Tensor,
} from '@tsrun/training'
import { errorOf } from '../../distributed/support/outcome.ts'

/** A tensor in plain arrays. */
interface Plain {
  readonly shape: readonly number[]
  readonly values: readonly number[]
}

type Index = readonly number[]

function fill(shape: readonly number[], valueAt: (index: Index, i: number) => number): Plain {
  const size = shape.reduce((product, length) => product * length, 1)
  const values = Array.from({ length: size }, (_, i) => {
    let rest = i
    const index = shape.map(() => 0)
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      index[axis] = rest % shape[axis]!
      rest = Math.floor(rest / shape[axis]!)
    }
    return valueAt(index, i)
  })
  return { shape, values }
}

function at({ shape, values }: Plain, index: Index): number {
  return values[index.reduce((offset, i, axis) => offset * shape[axis]! + i, 0)]!
}

function concat(parts: readonly Plain[], axis: number): Plain {
  const { shape } = parts[0]!
  const length = shape[axis]!
  return fill(shape.with(axis, length * parts.length), (index) => {
    const i = index[axis]!
    return at(parts[Math.floor(i / length)]!, index.with(axis, i % length))
  })
}

/** @param rank - of three ranks */
function partOf(whole: Plain, axis: number, rank: number): Plain {
  const length = whole.shape[axis]! / SIZE
  return fill(whole.shape.with(axis, length), (index) =>
    at(whole, index.with(axis, rank * length + index[axis]!)),
  )
}

function sumOf(all: readonly Plain[]): Plain {
  return fill(all[0]!.shape, (index) => all.reduce((sum, each) => sum + at(each, index), 0))
}

const SIZE = 3
const ranks = Array.from({ length: SIZE }, (_, rank) => rank)
type DType = 'float32' | 'int32'

/** The tensor of each rank; whole numbers, whose sums are exact. */
function inputs(shape: readonly number[]): Plain[] {
  return ranks.map((rank) => fill(shape, (_, i) => 100 * (rank + 1) + i))
}

/** The shape of the part of one rank, and the axis along which the parts lie. */
const shapes: (readonly [readonly number[], number])[] = [
  [[2], 0],
  [[3, 2], 0],
  [[2, 4], 1],
  [[2, 3, 4], -2],
  [[1, 2, 3], 2],
]
const cases = shapes.flatMap(([part, axis]) =>
  (['float32', 'int32'] as const).map((dtype) => {
    const along = axis < 0 ? axis + part.length : axis
    return { part, axis, dtype, along, whole: part.with(along, part[along]! * SIZE) }
  }),
)

/** Runs a collective on every rank, and compares its results with those expected; undefined: none. */
async function expectResults(
  dtype: DType,
  given: readonly Plain[],
  collective: (group: ProcessGroup, tensor: Tensor) => Promise<Tensor | undefined>,
  expected: readonly (Plain | undefined)[],
): Promise<void> {
  const before = tf.memory().numTensors
  await runWorld({ size: SIZE, seed: 1 }, async (group) => {
    const plain = given[group.rank]!
    const tensor = tf.tensor([...plain.values], [...plain.shape], dtype)
    const pending = collective(group, tensor)
    tensor.dispose()
    const result = await pending
    const wanted = expected[group.rank]
    const found = result && {
      shape: result.shape,
      dtype: result.dtype,
      values: await listOf(result),
    }
    expect(found).toEqual(wanted && { ...wanted, dtype })
    result?.dispose()
  })
  expect(tf.memory().numTensors).toBe(before)
}

async function listOf(tensor: Tensor): Promise<number[]> {
  return [...(await tensor.data())]
}

describe.each(['wasm', 'cpu'] as const)('collectives on tensors on %s', (backend) => {
  beforeAll(async () => {
    await loadBackend(backend)
  })

  it.each(cases)(
    'gather parts $part along axis $axis, $dtype',
    async ({ part, axis, dtype, along }) => {
      const all = inputs(part)
      const whole = concat(all, along)
      await expectResults(
        dtype,
        all,
        (group, own) => allGatherTensor(group, own, { axis }),
        ranks.map(() => whole),
      )
      await expectResults(
        dtype,
        all,
        (group, own) => gatherTensor(group, own, 1, { axis }),
        ranks.map((rank) => (rank === 1 ? whole : undefined)),
      )
    },
  )

  it.each(cases)(
    'cut $whole along axis $axis, $dtype',
    async ({ part, whole, axis, dtype, along }) => {
      const all = inputs(whole)
      const sum = sumOf(all)
      const largest = all.at(-1)!
      const parts = (of: Plain) => ranks.map((rank) => partOf(of, along, rank))
      await expectResults(
        dtype,
        all,
        (group, own) => reduceScatterTensor(group, own, { axis }),
        parts(sum),
      )
      await expectResults(
        dtype,
        all,
        (group, own) => reduceScatterTensor(group, own, { axis, op: 'max' }),
        parts(largest),
      )
      await expectResults(
        dtype,
        all,
        (group, own) =>
          scatterTensor(group, part, group.rank === 2 ? own : null, 2, { axis, dtype }),
        parts(all[2]!),
      )
      await expectResults(
        dtype,
        all,
        (group, own) => allToAllTensor(group, own, { axis }),
        ranks.map((to) =>
          concat(
            all.map((from) => partOf(from, along, to)),
            along,
          ),
        ),
      )
    },
  )

  it.each(['float32', 'int32'] as const)('keep the shape without an axis: %s', async (dtype) => {
    const all = inputs([2, 3])
    const sum = sumOf(all)
    await expectResults(
      dtype,
      all,
      (group, own) => broadcastTensor(group, own, 2),
      ranks.map(() => all[2]),
    )
    await expectResults(
      dtype,
      all,
      (group, own) => allReduceTensor(group, own),
      ranks.map(() => sum),
    )
    await expectResults(
      dtype,
      all,
      (group, own) => reduceTensor(group, own, 1),
      ranks.map((rank) => (rank === 1 ? sum : undefined)),
    )
  })

  it('gather and cut booleans', async () => {
    await runWorld({ size: SIZE }, async (group) => {
      const own = tf.tensor([group.rank === 1, true], [2, 1], 'bool')
      const all = await allGatherTensor(group, own, { axis: 1 })
      const back = await allToAllTensor(group, all, { axis: 1 })
      expect(all).toMatchObject({ dtype: 'bool', shape: [2, SIZE] })
      expect([...(await all.data())].map(Number)).toEqual([0, 1, 0, 1, 1, 1])
      const mine = Number(group.rank === 1)
      expect([...(await back.data())].map(Number)).toEqual([mine, mine, mine, 1, 1, 1])
      tf.dispose([own, all, back])
    })
  })

  it('free their buffers and make no tensor when they fail', async () => {
    const before = tf.memory().numTensors
    await runWorld({ size: 2 }, async (group) => {
      // Two buffers take two fifths of an arena.
      const tensor = tf.zeros([2, (10 * 2 ** 20) / 4 / 2])
      for (let i = 0; i < 6; i++) {
        const error = await errorOf(() =>
          reduceScatterTensor(group, tensor, { op: 'all' as never }),
        )
        expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
        const lost = await errorOf(() => gatherTensor(group, tensor, 2))
        expect(lost).toMatchObject({ code: 'ERR_TSR_RANK_RANGE' })
      }
      tensor.dispose()
    })
    expect(tf.memory().numTensors).toBe(before)
  })
})

it('collectives on tensors explain an invalid argument', async () => {
  await loadBackend('cpu')
  await runWorld({ size: 2 }, async (group) => {
    const tensor = tf.zeros([3, 4])
    const scalar = tf.scalar(1)
    const text = tf.tensor(['a', 'b'])
    const axis = (of: number) => ({ axis: of })
    const refusals: [() => Promise<unknown>, string][] = [
      [
        () => allGatherTensor(group, text),
        'is "string"; expected one of "float32", "int32", "bool"',
      ],
      [() => allGatherTensor(group, scalar), 'axis is 0; expected an axis of a tensor with 0'],
      [() => gatherTensor(group, tensor, 0, axis(-3)), 'axis is -3; expected an axis of a tensor'],
      [() => allToAllTensor(group, tensor, axis(1.5)), 'axis is 1.5'],
      [
        () => reduceScatterTensor(group, tensor),
        'axis 0 of a tensor of shape [3, 4] is 3; expected a multiple of the 2 ranks that share it',
      ],
      [() => allToAllTensor(group, tensor), 'expected a multiple of the 2 ranks'],
      [
        () => scatterTensor(group, [2, 4], tensor, group.rank),
        'float32 [4, 4], a part of [2, 4] for each rank',
      ],
      [() => scatterTensor(group, [3, 2], null, group.rank, axis(1)), 'expected a tensor'],
      [
        () => scatterTensor(group, [3, 2], tensor, group.rank, { axis: 1, dtype: 'int32' }),
        'tensor is float32 [3, 4]; expected int32 [3, 4]',
      ],
      [() => broadcastTensor(group, [1] as never, 0), 'tensor is an array'],
      [() => reduceTensor(undefined as never, tensor, 0), 'group is undefined'],
    ]
    for (const [call, message] of refusals) {
      const error = await errorOf(call)
      expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
      expect(error?.message).toContain(message)
    }
    tf.dispose([tensor, scalar, text])
  })
})
