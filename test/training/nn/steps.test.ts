import {
  Adam,
  crossEntropy,
  loadBackend,
  record,
  recordLoss,
  recordModule,
  SGD,
  ShardedMLP,
  sumInto,
  tf,
  type Module,
  type Optimizer,
  type Tensor,
} from '@tsrun/training'

const sizes = { layers: 4, inputs: 30, hidden: 22, outputs: 10, seed: 3 }
const microbatches = [1, 2].map((seed) => {
  const next = (i: number) => Math.sin(seed * 1000 + i * 1.7)
  return {
    inputs: Float32Array.from({ length: 12 * 30 }, (_, i) => next(i)),
    labels: Int32Array.from({ length: 12 }, (_, i) => (i * 7 + seed) % 10),
  }
})

/** Two micro-batches and an update, by the modules' own passes or on the tape. */
function step(model: Module, optimizer: Optimizer, passes: 'own' | 'tape'): number {
  const gradients = new Map<string, Tensor>()
  let sum = 0
  for (const { inputs, labels } of microbatches) {
    const x = tf.tensor2d(inputs, [12, 30])
    const y = tf.tensor1d(labels, 'int32')
    const one = tf.scalar(1)
    const own = passes === 'own'
    const options = { needsInputGradient: false }
    const recording = own
      ? recordModule(model, x, options)
      : record((h) => crossEntropy(model.forward(h), y), x, model.parameters, options)
    const loss = own ? recordLoss(crossEntropy, recording.value, y) : undefined
    sum += (loss ?? recording).value.dataSync()[0]!
    const dy = loss?.backward(one, () => undefined) ?? tf.clone(one)
    recording.backward(dy, sumInto(gradients))
    loss?.dispose()
    recording.dispose()
    tf.dispose([x, y, one, dy])
  }
  optimizer.step(model.parameters, gradients)
  return sum
}

const optimizers: [string, () => Optimizer][] = [
  ['SGD with momentum', () => new SGD({ learningRate: 0.01, momentum: 0.9 })],
  ['Adam', () => new Adam({ learningRate: 1e-3 })],
]

describe.each(optimizers)('training steps with %s', (_, optimizer) => {
  const losses = async (backend: 'wasm' | 'cpu', passes: 'own' | 'tape', steps: number) => {
    await loadBackend(backend)
    const model = new ShardedMLP(sizes)
    const update = optimizer()
    const values = Array.from({ length: steps }, () => step(model, update, passes))
    const weights = model.parameters.map(({ value }) => value.dataSync())
    return { values, weights }
  }

  it('have the same losses by fused kernels on wasm, by the tape and on the cpu backend', async () => {
    const fused = await losses('wasm', 'own', 50)
    expect(fused.values.at(-1)).toBeLessThan(fused.values[0]! * 0.9)
    for (const other of [await losses('wasm', 'tape', 50), await losses('cpu', 'own', 50)]) {
      other.values.forEach((loss, i) => {
        expect(Math.abs(loss / fused.values[i]! - 1)).toBeLessThan(1e-4)
      })
      other.weights.forEach((expected, i) => {
        const worst = expected.map((value, p) => Math.abs(value - fused.weights[i]![p]!))
        expect(Math.max(...worst)).toBeLessThan(1e-4)
      })
    }
  })

  it('leak nothing in 1,000 steps', async () => {
    await loadBackend('wasm')
    const model = new ShardedMLP(sizes)
    const update = optimizer()
    step(model, update, 'own')
    const before = tf.memory()
    const heap = heapBytes()
    for (let i = 0; i < 1000; i++) step(model, update, 'own')
    expect(tf.memory()).toEqual(before)
    expect(heapBytes()).toBe(heap)
  })
})

/** What the backend has taken from the system, with what no tensor counts. */
function heapBytes(): number {
  const { wasm } = tf.engine().backend as unknown as { wasm: { HEAPU8: Uint8Array } }
  return wasm.HEAPU8.length
}
