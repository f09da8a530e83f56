import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import { decode, encode } from '../../support/arithmetic.ts'
import { thrownBy } from '../../support/outcome.ts'

const alone = (run: (group: ProcessGroup) => void) =>
  runWorld({ size: 1 }, async (group) => {
    run(group)
    await Promise.resolve()
  })

describe.each(['float16', 'bfloat16'] as const)('convert() of %s', (dtype) => {
  it('converts each of its 65,536 values to float32 and back', async () => {
    await alone((group) => {
      const halves = group.alloc(dtype, 65_536)
      for (let i = 0; i < halves.length; i++) halves[i] = i
      const floats = group.alloc('float32', 65_536)
      group.convert(floats, halves)
      const wanted = Float32Array.from(halves, (half) => Number(decode(dtype, half)))
      expect(floats).toEqual(wanted)
      const back = group.alloc(dtype, 65_536)
      group.convert(back, floats)
      for (let i = 0; i < halves.length; i++) {
        if (back[i] !== encode(dtype, wanted[i]!)) expect(back[i]).toBe(encode(dtype, wanted[i]!))
      }
    })
  })

  it.each([1, 0.25, 1 / 3, 1e-6, 1e6])(
    'rounds float32 times %p at every length',
    async (factor) => {
      await alone((group) => {
        const floats = group.alloc('float32', 200)
        for (let i = 0; i < 200; i++) floats[i] = Math.sin(i) * 2 ** ((i % 60) - 30)
        const halves = group.alloc(dtype, 202)
        const by = Math.fround(factor)
        for (let length = 0; length < 100; length++) {
          halves.fill(0x1234)
          // parts of arrays, at addresses that are multiples of nothing
          const source = floats.subarray(length % 7, (length % 7) + length)
          group.convert(halves.subarray(1, 1 + length), source, factor)
          const wanted = Array.from(source, (x) => encode(dtype, Math.fround(x * by)))
          expect([...halves.subarray(0, length + 2)]).toEqual([0x1234, ...wanted, 0x1234])
        }
      })
    },
  )

  it('refuses arrays of the wrong type or length', async () => {
    await alone((group) => {
      const [floats, halves] = [group.alloc('float32', 4), group.alloc(dtype, 4)]
      const wrong = [
        () => {
          group.convert(halves.subarray(1), floats)
        },
        () => {
          group.convert(floats, floats.subarray(1))
        },
        () => {
          group.convert(floats, halves, 2)
        },
        () => {
          group.convert(halves, group.alloc('float64', 4))
        },
      ]
      for (const call of wrong) expect(thrownBy(call)).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
      const elsewhere = thrownBy(() => {
        group.convert(halves, new Float32Array(4))
      })
      expect(elsewhere).toMatchObject({ code: 'ERR_TSR_BUFFER' })
    })
  })
})

it('convert() multiplies float32, in place and into another array', async () => {
  await alone((group) => {
    const [values, others] = [group.alloc('float32', 37), group.allocUnsafe('float32', 37)]
    for (let i = 0; i < values.length; i++) values[i] = i / 7
    const [same, wanted] = [values.slice(), values.map((x) => Math.fround(x * Math.fround(0.3)))]
    group.convert(others, values, 0.3)
    expect([values, others]).toEqual([same, wanted])
    group.convert(others, values)
    expect(others).toEqual(same)
    group.convert(values.subarray(1, 36), values.subarray(1, 36), 0.3)
    expect(values).toEqual(Float32Array.of(same[0]!, ...wanted.slice(1, 36), same[36]!))
  })
})
