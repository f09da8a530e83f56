import { hasKernels, tensorflow } from '../training/backend/support/tensorflow.ts'
import { WarmProcess } from '../training/backend/support/warm.ts'
import { needing } from '../needs.ts'

const env = { ...tensorflow, TSRUN_BACKEND: 'tensorflow' }
const shared = new WarmProcess(env)
afterAll(() => {
  shared.end()
})

/** Runs a script that has the binding and its kernels, and gives `found` of what comes of it. */
async function found(script: string, warm = shared): Promise<unknown> {
  return await warm.run(
    `const { Adam, AdamW, loadBackend, SGD, tensorFrom, tf } = training
     await loadBackend()
     const backend = tf.backend()
     const { binding } = backend
     const { kernels } = binding
     const float = [{ name: 'T', type: binding.TF_ATTR_TYPE, value: binding.TF_FLOAT }]
     const tensor = (values, ...shape) => backend.getInputTensorIds([
       tensorFrom(Float32Array.from(values), shape.length === 0 ? [values.length] : shape),
     ])[0]
     const valuesOf = (handle) => [...binding.tensorDataSync(handle)]
     const failure = (call) => { try { call() } catch (error) { return error.message } }
     let found
     ${script}
     return found`,
  )
}

/** Two linear layers for `rows`, `widths` and `relu`, with the outputs of a batch. */
const twoLayers = `
      const values = (seed, ...shape) =>
        tensor(Array.from({ length: shape.reduce((a, b) => a * b) }, (_, i) => Math.sin(seed * (i + 1))), ...shape)
      const [x, dy] = [values(0.1, rows, widths[0]), values(0.2, rows, widths[2])]
      const weights = [0, 1].map((i) => values(0.3 + i, widths[i], widths[i + 1]))
      const biases = [0, 1].map((i) => values(0.4 + i, widths[i + 1]))
      const outputs = kernels.linearForward(Int32Array.of(x, ...weights, ...biases), relu)`

const { describe: describeIt } = needing(
  hasKernels,
  'TensorFlow with the kernels of these sources (npx tsrun setup tensorflow)',
)

describeIt('the native kernels of tensorflow', () => {
  it('change values in place only if no other tensor shares them', async () => {
    const outcome = await found(`
      const [value, gradient] = [tensor([1, 2]), tensor([10, 20])]
      const update = () => kernels.descend(Int32Array.of(value, gradient), 0.5)
      const alone = [update(), valuesOf(value)]
      const other = binding.executeOp('Identity', float, [value], 1)[0].id
      const shared = [update(), valuesOf(value), valuesOf(other)]
      binding.deleteTensor(other)
      found = { alone, shared, again: [update(), valuesOf(value)] }`)
    expect(outcome).toEqual({
      alone: [true, [-4, -8]],
      shared: [false, [-4, -8], [-4, -8]],
      again: [true, [-9, -18]],
    })
  })

  it('do not change an array from which a tensor was created', async () => {
    const outcome = await found(`
      const gradient = tensor(Array(64).fill(1))
      // at each place between two that TensorFlow likes: it takes over the memory of one of them
      const buffer = new ArrayBuffer(16 * 260 + 64)
      const arrays = Array.from({ length: 16 }, (_, i) => new Float32Array(buffer, 260 * i, 64))
      const done = arrays.map((array) => {
        const handle = binding.createTensor([64], binding.TF_FLOAT, array)
        return kernels.descend(Int32Array.of(handle, gradient), 1)
      })
      found = {
        copied: done.filter(Boolean).length,
        areWhole: arrays.every((array) => array.every((value) => value === 0)),
      }`)
    expect(outcome).toEqual({ copied: 15, areWhole: true })
  })

  it.each([
    ['SGD', 'new SGD({ learningRate: 0.1 })'],
    ['momentum', 'new SGD({ learningRate: 0.1, momentum: 0.9 })'],
    ['Adam', 'new Adam({ learningRate: 0.01 })'],
    ['AdamW', 'new AdamW({ learningRate: 0.01 })'],
  ])("update by %s to the bits of TensorFlow's operation, at any length", async (_, maker) => {
    // A backend keeps the binding of its first step.
    const own = new WarmProcess(env)
    const outcome = await found(
      `
      const size = 1000 + 37
      const values = (seed) => Float32Array.from({ length: size }, (_, i) => Math.sin(seed * (i + 1)))
      const calls = {}
      const counted = Object.entries(kernels).map(([name, kernel]) => [name, kernel === true || ((...args) => {
        const out = kernel(...args)
        if (out === true) calls[name] = (calls[name] ?? 0) + 1
        return out
      })])
      backend.binding = Object.create(binding, { kernels: { value: Object.fromEntries(counted) } })
      function train(isShared) {
        const parameter = { name: 'p', shape: [size], value: tensorFrom(values(0.7), [size]) }
        const optimizer = ${maker}
        for (let step = 1; step <= 5; step++) {
          const clone = isShared ? tf.clone(parameter.value) : undefined
          optimizer.step([parameter], new Map([['p', tensorFrom(values(step + 0.1), [size])]]))
          clone?.dispose()
        }
        return parameter.value.dataSync()
      }
      const [alone, shared] = [train(false), train(true)]
      const start = values(0.7)
      found = {
        calls: Object.values(calls),
        differ: alone.filter((value, i) => value !== shared[i]).length,
        moved: alone.every((value, i) => value !== start[i] && Number.isFinite(value)),
      }`,
      own,
    )
    own.end()
    expect(outcome).toEqual({ calls: [5], differ: 0, moved: true })
  })

  it('add to all sums in place, or to none if one is shared', async () => {
    const outcome = await found(`
      const [x, w, b] = [tensor([1, 2, 3, 4], 2, 2), tensor([1, 0, 0, 1], 2, 2), tensor([0, 0])]
      const relu = Uint8Array.of(1)
      const [y] = kernels.linearForward(Int32Array.of(x, w, b), relu)
      const run = (...sums) => kernels.linearBackward(Int32Array.of(x, y, w, y, ...sums), relu, true)
      const [dw, db, dx] = run()
      const once = [dw, db, dx].map(valuesOf)
      const added = run(dw, db)
      const twice = [dw, db, ...added].map(valuesOf)
      binding.executeOp('Identity', float, [db], 1)
      found = { once, twice, shared: run(dw, db), still: [dw, db].map(valuesOf) }`)
    const dx = [1, 2, 3, 4]
    const twice = [
      [20, 28, 28, 40],
      [8, 12],
    ]
    expect(outcome).toEqual({
      once: [[10, 14, 14, 20], [4, 6], dx],
      twice: [...twice, dx],
      shared: false,
      still: twice,
    })
  })

  it.each([
    ['few', 16],
    ['many', 700],
  ])('give the same bits in one pass, in halves and added to zeros: %s rows', async (_, rows) => {
    const outcome = await found(`
      const [rows, widths, relu] = [${rows}, [19, 37, 11], Uint8Array.of(1, 0)]
      ${twoLayers}
      const whole = kernels.linearBackward(Int32Array.of(x, dy, ...weights, ...outputs), relu, true)
      const [first, second, dx] =
        kernels.linearBackwardInput(Int32Array.of(dy, ...weights, ...outputs), relu, true)
      const halves = kernels.linearBackwardParameters(Int32Array.of(x, first, second, outputs[0]))
      const wanted = JSON.stringify(whole.map(valuesOf))
      const texts = [JSON.stringify([...halves, dx].map(valuesOf))]
      for (let time = 0; time < 8; time++) {
        const sums = [...weights, ...biases].map((_, i) => {
          const shape = i < 2 ? [widths[i], widths[i + 1]] : [widths[i - 1]]
          return kernels.copyIn(Int32Array.from(shape), new Float32Array(shape.reduce((a, b) => a * b)))[0]
        })
        const [added] =
          kernels.linearBackward(Int32Array.of(x, dy, ...weights, ...outputs, ...sums), relu, true)
        texts.push(JSON.stringify([...sums, added].map(valuesOf)))
      }
      found = texts.map((each) => each === wanted)`)
    expect(outcome).toEqual(Array(9).fill(true))
  })

  it('compute the products of any number of rows, at any width', async () => {
    const outcome = await found(`
      const relu = Uint8Array.of(0)
      const widest = (values, wanted) =>
        values.reduce((most, value, i) => Math.max(most, Math.abs(value - wanted[i])), 0)
      // sums of \`depth\` products in double precision
      const product = (rows, columns, depth, term) => Array.from({ length: rows * columns }, (_, at) => {
        let sum = 0
        for (let i = 0; i < depth; i++) sum += term(Math.floor(at / columns), at % columns, i)
        return sum
      })
      let worst = 0
      for (const rows of [1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 40]) {
        for (const [inputs, outputs] of [[1, 1], [3, 5], [33, 17], [64, 47], [65, 131]]) {
          const values = (seed, size) => Float32Array.from({ length: size }, (_, i) => Math.sin(seed * (i + 1)))
          const [X, W, B, D] =
            [values(0.1, rows * inputs), values(0.3, inputs * outputs), values(0.5, outputs), values(0.7, rows * outputs)]
          const [x, w, b, dy] =
            [tensor(X, rows, inputs), tensor(W, inputs, outputs), tensor(B), tensor(D, rows, outputs)]
          const [y] = kernels.linearForward(Int32Array.of(x, w, b), relu)
          const [dw, db, dx] = kernels.linearBackward(Int32Array.of(x, dy, w, y), relu, true)
          worst = Math.max(
            worst,
            widest(valuesOf(y), product(rows, outputs, inputs, (r, c, i) =>
              X[r * inputs + i] * W[i * outputs + c] + (i === 0 ? B[c] : 0))),
            widest(valuesOf(dx), product(rows, inputs, outputs, (r, c, i) => D[r * outputs + i] * W[c * outputs + i])),
            widest(valuesOf(dw), product(inputs, outputs, rows, (r, c, i) => X[i * inputs + r] * D[i * outputs + c])),
            widest(valuesOf(db), product(1, outputs, rows, (_, c, i) => D[i * outputs + c])),
          )
          for (const handle of [x, w, b, dy, y, dw, db, dx]) binding.deleteTensor(handle)
        }
      }
      found = worst`)
    expect(outcome).toBeLessThan(1e-4)
    expect(outcome).toBeGreaterThan(0)
  })

  it('write gradients into arrays, or add to arrays, with the same bits as in tensors', async () => {
    const outcome = await found(`
      const [rows, widths, relu] = [30, [19, 37, 11], Uint8Array.of(1, 0)]
      ${twoLayers}
      const inputs = Int32Array.of(x, dy, ...weights, ...outputs)
      const whole = kernels.linearBackward(inputs, relu, true)
      const wanted = whole.map(valuesOf)
      const sizes = [19 * 37, 37 * 11, 37, 11]
      // in shared memory, as the buckets of data parallel training, and off every boundary
      const memory = new Float32Array(new SharedArrayBuffer(4 * 2000))
      let at = 1
      const arrays = sizes.map((size) => memory.subarray(at, (at += size)))
      const differ = (factor) => arrays.map((array, i) =>
        array.filter((value, k) => value !== Math.fround(factor * wanted[i][k])).length)
      const first = kernels.linearBackward(inputs, relu, true, arrays, false)
      const written = [first.length, differ(1)]
      kernels.linearBackward(inputs, relu, true, arrays, true)
      const added = differ(2)
      const [a, b] = kernels.linearBackwardInput(Int32Array.of(dy, ...weights, ...outputs), relu, false)
      const none = kernels.linearBackwardParameters(Int32Array.of(x, a, b, outputs[0]), arrays, false)
      const apart = failure(() => kernels.linearBackward(inputs, relu, true, arrays.slice(1), false))
      const small = failure(() => kernels.linearBackward(inputs, relu, true, arrays.map((array) => array.subarray(1)), false))
      found = { written, added, halves: [none.length, differ(1)], apart, small, outside: memory[0] }`)
    const none = [0, 0, 0, 0]
    expect(outcome).toEqual({
      ...{ written: [1, none], added: none, halves: [0, none], outside: 0 },
      apart: 'a kernel of the binding takes an array for each gradient',
      small: 'a kernel of the binding takes an array as long as the tensor',
    })
  })

  it('update parameters from arrays as from tensors', async () => {
    const outcome = await found(`
      const size = 100
      const values = (seed) => Array.from({ length: size }, (_, i) => Math.sin(seed * (i + 1)))
      const array = Float32Array.from(values(0.3))
      const calls = {
        descend: [1, 0.1],
        descendWithMomentum: [2, 0.1, 0.9],
        adam: [3, 0.9, 0.999, 0.01, 0.9, 0.999, 1e-8, 0.99],
      }
      found = Object.entries(calls).map(([name, [changed, ...numbers]]) => {
        const tensors = () => Array.from({ length: changed }, (_, i) => tensor(values(0.5 + i).map(Math.abs)))
        const [one, other] = [tensors(), tensors()]
        const done = [
          kernels[name](Int32Array.of(...one, tensor(values(0.3))), ...numbers),
          kernels[name](Int32Array.from(other), ...numbers, array),
        ]
        const same = JSON.stringify(one.map(valuesOf)) === JSON.stringify(other.map(valuesOf))
        const long = failure(() => kernels[name](Int32Array.from(other), ...numbers, new Float32Array(size + 1)))
        return [name, ...done, same, long]
      })`)
    const long = 'a kernel of the binding takes an array as long as the tensor'
    const names = ['descend', 'descendWithMomentum', 'adam']
    expect(outcome).toEqual(names.map((name) => [name, true, true, true, long]))
  })

  it('propagate NaN through a ReLU and its gradient', async () => {
    const outcome = await found(`
      const rows = (values) => tensor(Array.from({ length: 19 }, () => values).flat(), 19, 3)
      const [w, b] = [tensor([1, 0, 0, 0, 1, 0, 0, 0, 1], 3, 3), tensor([0, 0, 0])]
      const [y] = kernels.linearForward(Int32Array.of(rows([-1, NaN, 1]), w, b), Uint8Array.of(1))
      const [finite] = kernels.linearForward(Int32Array.of(rows([-1, 0, 1]), w, b), Uint8Array.of(1))
      const [dz] = kernels.linearBackwardInput(
        Int32Array.of(rows([Infinity, NaN, 2]), w, finite), Uint8Array.of(1), false)
      found = [valuesOf(y), valuesOf(dz)].map((values) => [...new Set(values.map(String))])`)
    expect(outcome).toEqual([['NaN'], ['NaN', '2']])
  })

  it('throw an error that names an argument that does not fit', async () => {
    const outcome = await found(`
      const [x, w, b] = [tensor([1, 2], 1, 2), tensor([1, 0, 0, 1], 2, 2), tensor([0, 0, 0])]
      const forward = (...tensors) => failure(() => kernels.linearForward(Int32Array.of(...tensors), Uint8Array.of(0)))
      found = [
        forward(x, w, b),
        forward(x, x, b),
        forward(x, w),
        forward(x, w, 4711),
        failure(() => kernels.linearForward([x, w, b], Uint8Array.of(0))),
        failure(() => kernels.linearForward()),
        failure(() => kernels.adam(Int32Array.of(x, x, x, w), 0, 0, 0, 0, 0, 0, 1)),
        failure(() => kernels.copyOut(Int32Array.of(x), new Float32Array(3))),
        failure(() => kernels.copyIn(Int32Array.of(2, 2), new Float32Array(3))),
      ]`)
    const expected = [
      'tensors whose shapes fit one another',
      'layers that fit one another',
      'more tensors',
      'handles of tensors',
      'typed arrays: handles as Int32Array, flags as Uint8Array, values as Float32Array',
      'a backend and arguments',
      'tensors of one size',
      'an array as long as the tensor',
      'an array as long as the tensor',
    ]
    expect(outcome).toEqual(expected.map((what) => `a kernel of the binding takes ${what}`))
  })

  it('have a signal stack, so that CPU profiling does not corrupt the heap', async () => {
    const outcome = await found(`
      const { Session } = await import('node:inspector')
      const profiler = new Session()
      profiler.connect()
      profiler.post('Profiler.enable')
      profiler.post('Profiler.setSamplingInterval', { interval: 50 })
      profiler.post('Profiler.start')
      const [a, b] = [tensor(Array(4096).fill(1), 32, 128), tensor(Array(16384).fill(1), 128, 128)]
      const flag = (name) => ({ name, type: binding.TF_ATTR_BOOL, value: false })
      const attributes = [flag('transpose_a'), flag('transpose_b'), ...float]
      const end = performance.now() + 5000
      while (performance.now() < end) {
        binding.deleteTensor(binding.executeOp('MatMul', attributes, [a, b], 1)[0].id)
      }
      profiler.post('Profiler.stop')
      found = 'whole'`)
    expect(outcome).toBe('whole')
  })
})
