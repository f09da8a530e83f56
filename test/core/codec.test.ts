import { createContext, runInContext } from 'node:vm'
import { decode, encode, MESSAGE_LIMIT } from '@tsrun/core'
import fc from 'fast-check'
import { Packr } from 'msgpackr'

const there = (value: unknown): unknown => decode(encode(value))

const typedArrays = [
  Int8Array,
  Uint8Array,
  Uint8ClampedArray,
  Int16Array,
  Uint16Array,
  Int32Array,
  Uint32Array,
  Float32Array,
  Float64Array,
] as const

describe('the codec of control messages', () => {
  it.each(typedArrays.map((type) => [type.name, type] as const))('keeps a %s', (_, type) => {
    const array = type.from([1, 2, 250, 3])
    expect(there(array)).toEqual(array)
    expect(there(array.subarray(1, 3))).toEqual(array.slice(1, 3))
    expect(there({ odd: 'x', array })).toEqual({ odd: 'x', array })
  })

  it('keeps an array in shared memory', () => {
    const shared = new Float32Array(new SharedArrayBuffer(8))
    shared.set([1, 2])
    expect(there(shared)).toEqual(Float32Array.of(1, 2))
  })

  it('keeps arrays of another realm, as arrays of this one', () => {
    const foreign: unknown = runInContext(
      '({ a: Float32Array.of(1, 2, 3).subarray(1), b: BigInt64Array.of(5n), c: new Uint8Array(300) })',
      createContext(),
    )
    expect(there(foreign)).toEqual({
      a: Float32Array.of(2, 3),
      b: BigInt64Array.of(5n),
      c: new Uint8Array(300),
    })
  })

  it('keeps what structured clone keeps', () => {
    const value = {
      bigints: [0n, -1n, 2n ** 63n, 2n ** 64n, -(10n ** 40n)],
      wide: BigInt64Array.of(-1n),
      map: new Map<unknown, unknown>([
        [1, 'number'],
        ['1', 'text'],
        [{ key: 'object' }, new Map()],
      ]),
      set: new Set([1, '1']),
      date: new Date(1e12),
      nothing: [null, undefined],
      numbers: [NaN, Infinity, -Infinity, 2 ** 53, 0.1, 1e-320],
      text: 'wörter ✓ 🗝 \0',
      bytes: Buffer.from('abc'),
    }
    expect(there(value)).toEqual(value)
  })

  it('keeps name, message and cause of an error', () => {
    const error = new RangeError('too far', { cause: 'speed' })
    const copy = there(error) as Error
    expect([copy.name, copy.message, copy.cause]).toEqual(['RangeError', 'too far', 'speed'])
  })

  it('keeps identity and cycles', () => {
    const shared = { x: 1 }
    const cyclic: Record<string, unknown> = { list: [shared, shared], map: new Map() }
    cyclic['me'] = cyclic
    ;(cyclic['map'] as Map<string, unknown>).set('back', cyclic)
    const copy = there(cyclic) as { list: unknown[]; map: Map<string, unknown>; me: unknown }
    expect(copy.list[0]).toBe(copy.list[1])
    expect(copy.me).toBe(copy)
    expect(copy.map.get('back')).toBe(copy)
  })

  it('keeps any plain data, in any order of messages', () => {
    const data = fc.anything({
      withMap: true,
      withSet: true,
      withBigInt: true,
      withTypedArray: true,
      values: [
        fc.boolean(),
        fc.integer(),
        fc.double().filter((number) => !Object.is(number, -0)),
        fc.string({ unit: 'grapheme' }),
        fc.constantFrom(null, undefined),
        // for toEqual an invalid date is not equal to itself
        fc.date({ noInvalidDate: true }),
      ],
      key: fc.string().filter((key) => key !== '__proto__' && key !== 'toJSON'),
    })
    fc.assert(
      fc.property(fc.array(data, { maxLength: 5 }), (values) => {
        const messages = values.map((value) => encode(value))
        expect(messages.reverse().map((bytes) => decode(bytes))).toEqual(values.reverse())
      }),
      { numRuns: 200 },
    )
  })

  it('keeps many objects of different shapes in one message', () => {
    const objects = Array.from({ length: 500 }, (_, i) => ({
      [`key ${String(i % 150)}`]: i,
      inner: { [`x${String(i % 99)}`]: [i] },
    }))
    expect(there(objects)).toEqual(objects)
  })

  it('needs nothing but the message to decode it', () => {
    for (let i = 0; i < 50; i++) encode({ id: i, op: 'x' })
    const bytes = encode({ id: 1, op: 'x' })
    expect(new Packr({ structuredClone: true }).unpack(bytes)).toEqual({ id: 1, op: 'x' })
  })

  it('refuses what it cannot encode', () => {
    expect(() => encode({ symbol: Symbol('x') })).toThrow(
      expect.objectContaining({ code: 'ERR_TSR_ARGUMENT' }) as Error,
    )
  })

  it('refuses messages above the limit, before they are decoded', () => {
    const tooLarge = expect.objectContaining({ code: 'ERR_TSR_MESSAGE_TOO_LARGE' }) as Error
    expect(encode(new Uint8Array(100), 200).byteLength).toBeLessThan(200)
    expect(() => encode(new Uint8Array(200), 200)).toThrow(tooLarge)
    expect(() => encode(new Uint8Array(MESSAGE_LIMIT))).toThrow(tooLarge)
    expect(() => decode(new Uint8Array(201), 200)).toThrow(tooLarge)
    expect(() => decode(new Uint8Array(MESSAGE_LIMIT + 1))).toThrow(tooLarge)
  })

  it('refuses a message that is cut off anywhere', () => {
    const bytes = encode({ id: 7, keys: ['a', 'bc'], map: new Map([[1, new Float32Array(3)]]) })
    for (let length = 0; length < bytes.length; length++) {
      expect(() => decode(bytes.subarray(0, length))).toThrow(
        expect.objectContaining({ code: 'ERR_TSR_MESSAGE_INVALID' }) as Error,
      )
    }
  })

  it('refuses a message that is followed by more', () => {
    const more = Buffer.concat([encode('x'), encode('y')])
    expect(() => decode(more)).toThrow(/end of buffer not reached/)
  })

  it('answers any bytes with a value or one kind of error, and decodes on', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
        try {
          decode(bytes)
        } catch (error) {
          expect(error).toMatchObject({ code: 'ERR_TSR_MESSAGE_INVALID' })
        }
        expect(there({ still: ['well', 1] })).toEqual({ still: ['well', 1] })
      }),
      { numRuns: 2000 },
    )
  })

  it.each([
    ['an array said to be of 4 G elements', 'ddffffffff'],
    ['a map said to be of 4 G entries', 'dfffffffff'],
    ['a text said to be of 4 GiB', 'dbffffffff'],
    ['bytes said to be of 4 GiB', 'c6ffffffff'],
  ])('allocates nothing for %s', (_, hex) => {
    expect(() => decode(Buffer.from(hex, 'hex'))).toThrow(/could not be decoded/)
  })

  it('refuses a message nested beyond reason', () => {
    expect(() => decode(Buffer.alloc(1 << 20, 0x91))).toThrow(/could not be decoded/)
  })

  it('changes no prototype', () => {
    const evil = JSON.parse('{"__proto__": {"polluted": true}}') as object
    const copy = there(evil) as { polluted?: boolean }
    expect(copy.polluted).toBeUndefined()
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined()
  })
})

describe('a message that nobody of ours has encoded', () => {
  it('is refused by its containers before they are made', () => {
    const maps = new Uint8Array(8 * 1024 * 1024).fill(0x80)
    expect(() => decode(maps)).toThrow('more than 1048576 containers')
    // a record without fields, and references to it
    const records = new Uint8Array(4 * 1024 * 1024).fill(0x40)
    records.set([0xdd, 0, 0x40, 0, 0, 0xd4, 0x72, 0x40, 0x90])
    expect(() => decode(records)).toThrow('more than 1048576 containers')
    expect(() => decode(encode({ a: [[], []] }), MESSAGE_LIMIT, 3)).toThrow('containers')
    expect(decode(encode([1, 2, 3]), MESSAGE_LIMIT, 1)).toEqual([1, 2, 3])
  })

  it.each([
    ['a byte that is none of the format', [0xc1], 'does not use'],
    ['an extension of another program', [0xd4, 0x33, 0], 'the unknown type 51'],
    ['an extension without a type', [0xd4], 'the unknown type undefined'],
    ['half a text', [0xd9, 5, 0x41], 'in the middle'],
    ['half a length', [0xdb, 0], 'in the middle'],
    ['half a number', [0xcf, 1, 2], 'in the middle'],
  ])('is refused with %s', (_, bytes, problem) => {
    expect(() => decode(Uint8Array.from(bytes))).toThrow(problem)
  })
})
