import { instantiateKernels } from '../../internals/training.ts'

const memory = new WebAssembly.Memory({ initial: 64 })
const kernels = instantiateKernels(memory)
const guard = 1234.5
let end = 0

beforeEach(() => {
  end = 1024
})

/** Returns the address of values, between guards, and a way to read them, which checks the guards. */
function place(values: ArrayLike<number>) {
  const at = end + 4
  end += 4 * (values.length + 2)
  const all = new Float32Array(memory.buffer, at - 4, values.length + 2).fill(guard)
  all.set(values, 1)
  const read = () => {
    expect([all[0], all.at(-1)]).toEqual([guard, guard])
    return all.slice(1, -1)
  }
  return { at, read }
}

/** Values of all signs and magnitudes, among them NaN, infinities and both zeros. */
function mixed(length: number, seed: number): Float32Array {
  const special = [NaN, Infinity, -Infinity, 0, -0, 200, -200, 1e-30]
  return wave(length, seed).map((value, i) => {
    const k = (i + seed) % 29
    return k < special.length ? special[k]! : value
  })
}

const wave = (length: number, seed: number) =>
  Float32Array.from({ length }, (_, i) => 3 * Math.sin(seed + i * i))

describe('the finisher ADD', () => {
  const ADD = 3

  it.each([
    [1, 1, 1],
    [1, 9, 6],
    [3, 5, 7],
    [4, 8, 3],
    [7, 21, 300],
    [130, 33, 17],
  ])('adds a residual to a product of %d x %d x %d', (m, n, k) => {
    const [a, b, bias] = [wave(m * k, 1), wave(k * n, 2), wave(n, 3)].map(place)
    const residual = place(mixed(m * n, 4))
    const scratch = place(wave(kernels.scratch_bytes() >> 2, 5))
    const compute = (finisher: number) => {
      const c = place(wave(m * n, 6))
      kernels.product(c.at, 4 * n, false, a!.at, b!.at, m, n, k, 4 * k, 4, 4 * n, 4, bias!.at, finisher, residual.at, scratch.at) // prettier-ignore
      return c.read()
    }
    const sums = compute(0)
    const rest = residual.read()
    expect(compute(ADD)).toEqual(sums.map((sum, i) => rest[i]! + sum))
  })

  it.each([
    [0, 3],
    [1, 1],
    [3, 7],
    [5, 16],
    [2, 31],
  ])('adds a residual and a bias to %d rows of %d', (rows, columns) => {
    const [x, y, bias] = [mixed(rows * columns, 1), mixed(rows * columns, 2), wave(columns, 3)]
    const [c, residual, start] = [place(x), place(y), place(bias)]
    kernels.finish_rows(c.at, rows, columns, start.at, ADD, residual.at)
    const wanted = x.map((value, i) => y[i]! + Math.fround(value + bias[i % columns]!))
    expect(c.read()).toEqual(wanted)
    expect(residual.read()).toEqual(y)
  })
})

describe('gate', () => {
  it.each([
    [0, 4],
    [3, 1],
    [5, 3],
    [2, 7],
    [3, 64],
    [2, 2501],
  ])('adds a bias to %d rows of %d, also in place', (rows, columns) => {
    const x = mixed(rows * columns, 1)
    const bias = place(mixed(columns, 11))
    const before = place(x)
    kernels.finish_rows(before.at, rows, columns, bias.at, 0, 0)
    const compute = (out: Placed, x: Placed, bias: number) => {
      const slope = place(x.read())
      kernels.gate(out.at, slope.at, x.at, rows, columns, bias, 1.6, 0.07)
      return [out.read(), slope.read()]
    }
    const wanted = compute(place(x), before, 0)
    const input = place(x)
    expect(compute(place(x), input, bias.at)).toEqual(wanted)
    expect(input.read()).toEqual(x)
    expect(compute(input, input, bias.at)).toEqual(wanted)
  })
})

describe('multiply', () => {
  it.each([0, 1, 4, 7, 33])('gives the products of %d values, also in place', (count) => {
    const [x, y] = [mixed(count, 1), mixed(count, 2)]
    const wanted = x.map((value, i) => value * y[i]!)
    for (const target of ['x', 'y', 'out'] as const) {
      const tensors = { x: place(x), y: place(y), out: place(x) }
      kernels.multiply(tensors[target].at, tensors.x.at, tensors.y.at, count)
      expect(tensors[target].read()).toEqual(wanted)
    }
  })
})

describe('normalize_gradients', () => {
  it.each([
    [1, 1],
    [3, 7],
    [5, 8],
    [2, 33],
  ])('adds a residual to the gradient of %d rows of %d, also in place', (rows, width) => {
    const size = rows * width
    const [x, dy, scale] = [wave(size, 1), wave(size, 2), wave(width, 3)].map(place)
    const [out, shift, dScale, dShift] = [size, width, width, width].map((n) => place(wave(n, 4)))
    const statistics = place(wave(3 * rows, 5))
    kernels.normalize(out!.at, statistics.at, x!.at, scale!.at, shift!.at, rows, width, 1e-5)
    end = (end + 7) & ~7
    const sums = end
    end += 16 * width
    const compute = (dx: Placed, residual: number) => {
      kernels.normalize_gradients(dx.at, dScale!.at, dShift!.at, dy!.at, x!.at, scale!.at, statistics.at, sums, rows, width, residual) // prettier-ignore
      return dx.read()
    }
    const alone = compute(place(wave(size, 6)), 0)
    const values = mixed(size, 7)
    const residual = place(values)
    const wanted = alone.map((value, i) => values[i]! + value)
    expect(compute(place(wave(size, 6)), residual.at)).toEqual(wanted)
    expect(residual.read()).toEqual(values)
    expect(compute(residual, residual.at)).toEqual(wanted)
  })
})

type Placed = ReturnType<typeof place>
