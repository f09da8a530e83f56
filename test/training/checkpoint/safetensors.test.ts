import { readFileSync, writeFileSync, readdirSync, readlinkSync, symlinkSync } from 'node:fs'
import { join } from 'node:path'
import { openSafetensors, writeSafetensors } from '@tsrun/training'
import { failure } from '../parallel/support/failure.ts'
import { makeFolder, removeFolders } from './support/folder.ts'

afterEach(removeFolders)

/** A file of this header and as many bytes of data. */
function fileOf(header: unknown, dataBytes: number): string {
  const json = Buffer.from(typeof header === 'string' ? header : JSON.stringify(header))
  const length = Buffer.alloc(8)
  length.writeBigUInt64LE(BigInt(json.length))
  const path = join(makeFolder(), 'made.safetensors')
  writeFileSync(path, Buffer.concat([length, json, Buffer.alloc(dataBytes)]))
  return path
}

const f32 = (shape: unknown, ...data_offsets: unknown[]) => ({ dtype: 'F32', shape, data_offsets })

it('a safetensors file preserves the bits of every dtype', async () => {
  const path = join(makeFolder(), 'all.safetensors')
  const tensors = new Map<
    string,
    Parameters<typeof writeSafetensors>[1] extends ReadonlyMap<string, infer T> ? T : never
  >([
    ['float32', { shape: [2, 2], values: Float32Array.of(1, -0, NaN, 1e-40) }],
    ['float64', { shape: [1], values: Float64Array.of(Math.PI) }],
    ['int8', { shape: [3], values: Int8Array.of(-1, 0, 127) }],
    ['int32', { shape: [2], values: Int32Array.of(-5, 2 ** 31 - 1) }],
    ['int64', { shape: [1], values: BigInt64Array.of(-(2n ** 60n)) }],
    ['uint8', { shape: [], values: Uint8Array.of(255) }],
    ['bool', { shape: [2], values: Uint8Array.of(0, 1), dtype: 'BOOL' }],
    ['bfloat16', { shape: [1], values: Uint16Array.of(0x3f80), dtype: 'BF16' }],
    ['nothing', { shape: [0, 4], values: new Float32Array(0) }],
    ['a "name"\n ü', { shape: [1], values: Uint32Array.of(7) }],
  ])
  await writeSafetensors(path, tensors, { made: 'here' })
  const file = openSafetensors(path)
  expect(file.metadata).toEqual({ made: 'here' })
  expect([...file.entries.keys()]).toEqual([...tensors.keys()])
  for (const [name, { shape, values, dtype }] of tensors) {
    expect(file.entry(name).shape).toEqual(shape)
    if (dtype !== undefined) expect(file.entry(name).dtype).toBe(dtype)
    expect(file.read(name)).toEqual(values)
  }
  expect(file.readFloats('bfloat16')).toEqual(Float32Array.of(1))
  expect(() => file.readFloats('int8')).toThrow(failure('ERR_TSR_SAFETENSORS'))
  expect(() => file.read('weight')).toThrow(failure('ERR_TSR_SAFETENSORS_TENSOR'))
})

it('a safetensors file aligns its data to eight bytes', async () => {
  const path = join(makeFolder(), 'aligned.safetensors')
  await writeSafetensors(path, new Map([['x', { shape: [1], values: Float32Array.of(1) }]]))
  expect(Number(readFileSync(path).readBigUInt64LE()) % 8).toBe(0)
})

it('a safetensors file is not written if the number of values does not match the shape', async () => {
  const folder = makeFolder()
  const tensors = new Map([['x', { shape: [3], values: Float32Array.of(1) }]])
  await expect(writeSafetensors(join(folder, 'x.safetensors'), tensors)).rejects.toMatchObject({
    code: 'ERR_TSR_ARGUMENT',
    facts: { name: 'x' },
  })
  expect(readdirSync(folder)).toEqual([])
})

describe('the safetensors reader', () => {
  it.each([
    ['that is not JSON', 'no', 0, 'not JSON'],
    ['whose header is an array', [], 0, 'not a JSON object'],
    ['whose header begins with a space', ' {}', 0, 'not a JSON object'],
    [
      'with an unknown dtype',
      { x: { ...f32([1], 0, 4), dtype: 'F31' } },
      4,
      'x has the unknown dtype',
    ],
    ['without a shape', { x: { dtype: 'F32', data_offsets: [0, 4] } }, 4, 'x has no shape'],
    ['with a negative length', { x: f32([-1], 0, 4) }, 4, 'x has no shape'],
    ['without offsets', { x: { dtype: 'F32', shape: [1] } }, 4, 'x has no offsets'],
    ['with half an offset', { x: f32([1], 0.5, 4.5) }, 4, 'x has no offsets'],
    ['with reversed offsets', { x: f32([1], 4, 0) }, 4, 'x has -4 bytes instead of 4'],
    ['with too few bytes for a shape', { x: f32([2], 0, 4) }, 4, 'x has 4 bytes instead of 8'],
    ['with an impossible shape', { x: f32([2 ** 40, 2 ** 40], 0, 4) }, 4, 'x has 4 bytes'],
    ['whose tensors overlap', { x: f32([2], 0, 8), y: f32([2], 4, 12) }, 12, 'y overlaps'],
    ['with a gap', { x: f32([1], 0, 4), y: f32([1], 8, 12) }, 12, 'y comes after a gap'],
    ['that is truncated', { x: f32([2], 0, 8) }, 7, 'truncated'],
    ['with more bytes at its end', { x: f32([2], 0, 8) }, 9, 'something was appended'],
    ['with metadata that are not strings', { __metadata__: { step: 1 } }, 0, 'metadata'],
    ['with an entry that is null', { x: null }, 0, 'x is not an object'],
  ])('refuses a file %s', (_, header, dataBytes, problem) => {
    const path = fileOf(header, dataBytes)
    const refused = expect.objectContaining({
      code: 'ERR_TSR_SAFETENSORS',
      facts: { path, problem: expect.stringContaining(problem) as string },
    }) as Error
    expect(() => openSafetensors(path)).toThrow(refused)
  })

  it.each([
    ['that is empty', Buffer.alloc(0), '0 bytes'],
    ['of seven bytes', Buffer.alloc(7), '7 bytes'],
    [
      'whose header would be longer than it',
      Buffer.from('ffffff0000000000', 'hex'),
      'longer than the file',
    ],
    ['whose header has no end', Buffer.alloc(16, 0xff), 'longer than the file'],
  ])('refuses a file without a complete header: a file %s', (_, content, problem) => {
    const path = join(makeFolder(), 'bad.safetensors')
    writeFileSync(path, content)
    const refused = expect.objectContaining({
      code: 'ERR_TSR_SAFETENSORS',
      facts: { path, problem: expect.stringContaining(problem) as string },
    }) as Error
    expect(() => openSafetensors(path)).toThrow(refused)
  })
})

it('safetensors refuses a tensor with the name that the format reserves', async () => {
  const tensors = new Map([['__metadata__', { shape: [1], values: Float32Array.of(1) }]])
  const path = join(makeFolder(), 'x.safetensors')
  await expect(writeSafetensors(path, tensors)).rejects.toMatchObject({
    code: 'ERR_TSR_ARGUMENT',
    facts: { value: '__metadata__' },
  })
})

it('safetensors reads a tensor named __proto__', () => {
  const path = fileOf('{"__proto__":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', 4)
  const file = openSafetensors(path)
  expect(file.read('__proto__')).toEqual(Float32Array.of(0))
})

it('a safetensors file does not replace a link to a device', async () => {
  const folder = makeFolder()
  const path = join(folder, 'out.safetensors')
  symlinkSync('/dev/null', path)
  const tensors = new Map([['a', { shape: [1], values: Float32Array.of(1) }]])
  const refused = `${path} is a symbolic link, not a regular file`
  await expect(writeSafetensors(path, tensors)).rejects.toThrow(refused)
  expect(readlinkSync(path)).toBe('/dev/null')
  expect(readdirSync(folder)).toEqual(['out.safetensors'])
})
