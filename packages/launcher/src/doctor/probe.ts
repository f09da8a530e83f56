/**
 * A program: `node probe.js BACKEND URL-OF-TRAINING` trains one step and prints the result as a line of
 * JSON.
 */

interface Tensor {
  data(): Promise<Float32Array>
}

/** The part of @tsrun/training that is used here. The launcher does not depend on @tsrun/training. */
interface Training {
  loadBackend(name: string): Promise<{ readonly device?: string; readonly threads?: number }>
  readonly tf: {
    readonly version_core: string
    tensor2d(values: number[][]): Tensor
    matMul(a: Tensor, b: Tensor): Tensor
  }
  shardedMLP(options: object): { slice(from: number, to: number): Module }
  recordModule(module: Module, x: Tensor, options: object): Recording
  readonly SGD: new (options: object) => { step(parameters: unknown, gradients: unknown): void }
  sumInto(gradients: Map<string, Tensor>): unknown
}

interface Module {
  readonly parameters: readonly { value: Tensor }[]
}

interface Recording {
  readonly value: Tensor
  backward(dy: Tensor, onGradient: unknown): unknown
}

async function train(name: string, url: string): Promise<object> {
  const training = (await import(url)) as Training
  const { tf } = training
  const { device, threads } = await training.loadBackend(name)
  const model = training.shardedMLP({ layers: 2, inputs: 2, hidden: 3, outputs: 2 }).slice(0, 2)
  const before = await Promise.all(model.parameters.map(({ value }) => value.data()))
  const x = tf.tensor2d([
    [1, 2],
    [3, 4],
  ])
  const [product] = await tf.matMul(x, x).data()
  if (product !== 7) throw new Error(`a product of matrices is ${product}, not 7`)
  const recording = training.recordModule(model, x, { needsInputGradient: false })
  const gradients = new Map<string, Tensor>()
  recording.backward(tf.matMul(x, x), training.sumInto(gradients))
  new training.SGD({ learningRate: 0.1 }).step(model.parameters, gradients)
  const after = await Promise.all(model.parameters.map(({ value }) => value.data()))
  const changed = after.flatMap((values, i) =>
    [...values].map((value, j) => value - before[i]![j]!),
  )
  if (!changed.every(Number.isFinite) || changed.every((change) => change === 0)) {
    throw new Error('a training step does not change the parameters as it should')
  }
  return { works: true, version: `TensorFlow.js ${tf.version_core}`, device, threads }
}

const [, , name = 'wasm', url = '@tsrun/training'] = process.argv
const outcome = await train(name, url).catch((error: unknown) => ({
  works: false,
  reason: error instanceof Error ? error.message : String(error),
  missing: false,
}))
process.stdout.write(`\n${JSON.stringify(outcome)}\n`)
