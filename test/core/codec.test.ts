import { once } from 'node:events'
import { createContext, runInContext } from 'node:vm'
import { Worker } from 'node:worker_threads'
import { decode, encode } from '@tsrun/core'
import fc from 'fast-check'
import { Unpackr } from 'msgpackr'
import { plainly } from '../fuzz/inputs.ts'
import { MESSAGE_LIMIT } from '../internals/core.ts'

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

  it('keeps typed arrays of another realm, as arrays of this realm', () => {
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

  it('sends a regular expression as its text', () => {
    const shared = { a: 1 }
    expect(there([/a/g, shared, shared])).toEqual(['/a/g', shared, shared])
  })

  it('keeps all types that structured clone keeps', () => {
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

  it('keeps the name, message and cause of an error', () => {
    const error = new RangeError('too far', { cause: new Map([['speed', -0]]) })
    const copy = there(error) as Error
    expect(copy).toEqual(error)
    expect([copy.name, copy.cause]).toEqual(['RangeError', error.cause])
    for (const name of ['valueOf', '__lookupGetter__', '__proto__', 'AggregateError']) {
      const odd = Object.assign(new Error('own'), { name })
      expect([(there(odd) as Error).name, (there(odd) as Error).message]).toEqual([name, 'own'])
    }
  })

  it('keeps the sign of zero', () => {
    const value = { a: -0, b: [0, -0], c: new Map([['d', -0]]), e: Float32Array.of(-0) }
    expect(there(value)).toEqual(value)
    expect(there(-0)).toBe(-0)
  })

  it('encodes a class by its toJSON', () => {
    class Point {
      toJSON(): unknown {
        return { type: 'point', place: { x: -0 } }
      }
    }
    expect(there(new Point())).toEqual({ type: 'point', place: { x: -0 } })
  })

  it('copies an object at each of its places', () => {
    const shared = { x: [1] }
    const copy = there([shared, shared, new Map([[shared, shared]])]) as unknown[]
    expect(copy).toEqual([shared, shared, new Map([[shared, shared]])])
    expect(copy[0]).not.toBe(copy[1])
  })

  it('refuses objects whose copies would be too many', () => {
    let shared: unknown[] = []
    for (let i = 0; i < 40; i++) shared = [shared, shared]
    expect(() => encode(shared)).toThrow('more than 1048576 objects')
  })

  it('keeps an object of 100,000 keys', () => {
    const large = Object.fromEntries(
      Array.from({ length: 100_000 }, (_, i) => [`k${String(i)}`, i]),
    )
    expect(there(large)).toEqual(large)
  })

  it('refuses an object that contains itself, and encodes later messages', () => {
    const error = new Error('of itself')
    error.cause = [error]
    const map = new Map<string, unknown>()
    for (const cyclic of [error, map.set('back', { map })]) {
      expect(() => encode(cyclic)).toThrow('an object contains itself')
    }
    expect(there(new Error('of another', { cause: 'none' }))).toMatchObject({ cause: 'none' })
  })

  it('keeps any plain data, in messages of any order', () => {
    const data = fc.anything({
      withMap: true,
      withSet: true,
      withBigInt: true,
      withTypedArray: true,
      values: [
        fc.boolean(),
        fc.integer(),
        fc.double(),
        fc.string({ unit: 'grapheme' }),
        fc.constantFrom(null, undefined),
        // for toEqual an invalid date is not equal to itself
        fc.date({ noInvalidDate: true }),
      ],
      key: fc.string({ unit: 'grapheme' }),
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

  it('writes plain data that any decoder of MessagePack reads', () => {
    const value = { id: 1, op: 'x', list: [{ a: null }, 0.5, 'y', true] }
    expect(new Unpackr({ useRecords: false }).unpack(encode(value))).toEqual(value)
  })

  it('refuses values that it cannot encode', () => {
    for (const value of [{ symbol: Symbol('x') }, [new SharedArrayBuffer(8)]]) {
      expect(() => encode(value)).toThrow(
        expect.objectContaining({ code: 'ERR_TSR_ARGUMENT' }) as Error,
      )
    }
  })

  it('refuses messages above the limit before decoding them', () => {
    const tooLarge = expect.objectContaining({ code: 'ERR_TSR_MESSAGE_TOO_LARGE' }) as Error
    expect(encode(new Uint8Array(100), 200).byteLength).toBeLessThan(200)
    expect(() => encode(new Uint8Array(200), 200)).toThrow(tooLarge)
    expect(() => encode(new Uint8Array(MESSAGE_LIMIT))).toThrow(tooLarge)
    expect(() => decode(new Uint8Array(201), 200)).toThrow(tooLarge)
    expect(() => decode(new Uint8Array(MESSAGE_LIMIT + 1))).toThrow(tooLarge)
  })

  it('refuses a message that is cut off at any byte', () => {
    const bytes = encode({ id: 7, keys: ['a', 'bc'], map: new Map([[1, new Float32Array(3)]]) })
    for (let length = 0; length < bytes.length; length++) {
      expect(() => decode(bytes.subarray(0, length))).toThrow(
        expect.objectContaining({ code: 'ERR_TSR_MESSAGE_INVALID' }) as Error,
      )
    }
  })

  it('refuses a message with extra bytes at its end', () => {
    const more = Buffer.concat([encode('x'), encode('y')])
    expect(() => decode(more)).toThrow('followed by more')
  })

  it('decodes any bytes to a value or ERR_TSR_MESSAGE_INVALID, and remains usable', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
        try {
          plainly(decode(bytes))
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

  it('refuses a message that is nested too deeply', () => {
    expect(() => decode(Buffer.alloc(1 << 20, 0x91))).toThrow(/could not be decoded/)
  })

  it('keeps a key __proto__ as a key, and changes no prototype', () => {
    const evil = JSON.parse('{"__proto__": {"polluted": true}, "a": [1]}') as object
    const copy = there([evil, evil]) as object[]
    expect(JSON.stringify(copy[0])).toBe('{"__proto__":{"polluted":true},"a":[1]}')
    expect(Object.getPrototypeOf(copy[0])).toBe(Object.prototype)
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined()
  })
})

describe('a hostile or foreign message', () => {
  const hex = (...parts: string[]) => Buffer.from(parts.join(''), 'hex')
  const text = (value: string) =>
    (0xa0 + value.length).toString(16) + Buffer.from(value).toString('hex')

  it('is refused if it has too many containers, before they are allocated', () => {
    const maps = new Uint8Array(8 * 1024 * 1024).fill(0x80)
    maps.set([0xdd, 0, 0x7f, 0xff, 0xfb])
    expect(() => decode(maps)).toThrow('more than 1048576 containers')
    expect(() => decode(encode({ a: [[], []] }), MESSAGE_LIMIT, 3)).toThrow('containers')
    expect(decode(encode([1, 2, 3]), MESSAGE_LIMIT, 1)).toEqual([1, 2, 3])
  })

  it('needs little more memory than its list if it is a long Map', async () => {
    const program = `
      import('@tsrun/core').then(({ decode }) => {
        const bytes = new Uint8Array(16 * 1024 * 1024).fill(1)
        const entries = (bytes.length - 8) & ~1
        bytes.set([0xd4, 0x4d, 0, 0xdd])
        new DataView(bytes.buffer).setUint32(4, entries)
        require('node:worker_threads').parentPort.postMessage(decode(bytes.subarray(0, 8 + entries)))
      })`
    // An array for each pair would take 500 MB.
    const resourceLimits = { maxOldGenerationSizeMb: 320 }
    const worker = new Worker(program, { eval: true, resourceLimits })
    expect(await once(worker, 'message')).toEqual([new Map([[1, 1]])])
    await worker.terminate()
  })

  it.each([
    ['a byte that the format does not use', hex('c1'), 'does not use'],
    ['an extension of another program', hex('d43300'), 'the unknown type 51'],
    ['a regular expression', hex('d4780092a161a167'), 'the unknown type 120'],
    ['an extension without a type', hex('d4'), 'the unknown type undefined'],
    ['half a text', hex('d90541'), 'in the middle'],
    ['half a length', hex('db00'), 'in the middle'],
    ['half a number', hex('cf0102'), 'in the middle'],
    ['a record', hex('d4724091', text('a'), '01'), 'the unknown type 114'],
    ['bundled texts', hex('d662000000040101'), 'a tag without a list'],
    ['a key __proto__', hex('81', text('__proto__'), '80'), 'the key __proto__'],
    ['a long key __proto__', hex('81d909', text('__proto__').slice(2), '80'), 'the key __proto__'],
    ['a number as a key', hex('810102'), 'a key is not a text'],
    ['a list as a key', hex('819001'), 'a key is not a text'],
    ['a tag without a list', hex('d4730001'), 'a tag without a list'],
    ['a long tag', hex('d573000090'), 'a tag without a list'],
    ['a map without a value', hex('d44d009101'), 'a key without a value'],
    ['an object of numbers', hex('d46f00920102'), 'in the place of a text'],
    ['an error without a text', hex('d4650092', text('Error'), '01'), 'in the place of a text'],
    ['bytes of class Object', hex('d4620092', text('constructor'), 'c400'), 'an unknown class'],
    ['an array of no bytes', hex('d4620092', text('Int8Array'), '01'), 'an unknown class'],
  ])('is refused if it contains %s', (_, bytes, problem) => {
    expect(() => decode(bytes)).toThrow(
      expect.objectContaining({
        code: 'ERR_TSR_MESSAGE_INVALID',
        message: expect.stringContaining(problem) as string,
      }) as Error,
    )
  })

  it.each([
    ['__lookupGetter__', '__proto__'],
    ['valueOf', ''],
    ['constructor', 'x'],
    ['toString', ''],
    ['__proto__', ''],
  ])('with an error named %s decodes to a plain error', (name, message) => {
    const value = decode(hex('d4650093', text(name), text(message), 'c0'))
    expect(plainly(value)).toBe(value)
    expect([(value as Error).name, (value as Error).message]).toEqual([name, message])
  })

  it('never makes the decoder compile code', () => {
    const record = hex('d4724091', text('a'), '01')
    const list = Buffer.concat([hex('99'), record, ...Array<Buffer>(8).fill(hex('4001'))])
    const evaluate = globalThis.Function
    globalThis.Function = (() => {
      throw new Error('compiled')
    }) as unknown as FunctionConstructor
    try {
      expect(() => decode(list)).toThrow('the unknown type 114')
    } finally {
      globalThis.Function = evaluate
    }
  })
})
