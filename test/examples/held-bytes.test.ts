import { SpanRecorder } from '@tsrun/distributed'
import { cutBatch, loadBackend, shardedMLP, tf } from '@tsrun/training'
import { heldBytes } from '../../examples/lib/course.ts'
import { LessonStage } from '../../examples/lib/lesson-stage.ts'

const ROWS = 64
const [LAYERS, WIDTH] = [8, 128]

interface WasmBackend {
  readonly wasm: { _malloc(bytes: number): number; _free(address: number): void }
}

/** The most bytes that the wasm backend has allocated at once while `run` ran. */
function peakOf(run: () => void): number {
  const { wasm } = tf.backend() as unknown as WasmBackend
  const [malloc, free] = [wasm._malloc.bind(wasm), wasm._free.bind(wasm)]
  const sizes = new Map<number, number>()
  let [live, peak] = [0, 0]
  const watched: WasmBackend['wasm'] = {
    _malloc(bytes) {
      const address = malloc(bytes)
      sizes.set(address >>> 0, bytes)
      live += bytes
      peak = Math.max(peak, live)
      return address
    },
    _free(address) {
      live -= sizes.get(address >>> 0) ?? 0
      sizes.delete(address >>> 0)
      free(address)
    },
  }
  Object.assign(wasm, watched)
  run()
  Object.assign(wasm, { _malloc: malloc, _free: free })
  return peak
}

/** Runs the forwards of all micro-batches, then the backwards. Returns what `heldBytes` says. */
function train(microbatches: number): number {
  const size = microbatches * ROWS
  const [inputs, labels] = [tf.ones([size, 784]), tf.ones([size], 'int32')]
  const module = shardedMLP({ layers: LAYERS, hidden: WIDTH }).build()
  const stage = new LessonStage(module, 0, 1, new SpanRecorder({ rank: 0 }), [ROWS, WIDTH])
  stage.begin(cutBatch({ inputs, labels }, microbatches))
  const order = Array.from({ length: microbatches }, (_, microbatch) => microbatch)
  for (const microbatch of order) void stage.forward(microbatch)
  for (const microbatch of order) void stage.backward(microbatch)
  return heldBytes(module, stage.peakInFlight * ROWS)
}

it.each([1, 2, 6])(
  'the memory that a lesson shows is what its stage allocates: %i micro-batches in flight',
  async (microbatches) => {
    await loadBackend('wasm')
    // Kernels allocate their temporary memory at their first calls.
    train(1)
    let held = 0
    const peak = peakOf(() => (held = train(microbatches)))
    // The batch does not count, only the micro-batches that are cut from it. A single one is the batch.
    const digits = microbatches === 1 ? 0 : microbatches * ROWS * 4 * (784 + 1)
    expect((peak - digits) / held).toBeGreaterThan(0.98)
    expect((peak - digits) / held).toBeLessThan(1.1)
  },
)
