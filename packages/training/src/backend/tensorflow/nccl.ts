import type { Tensor } from '@tensorflow/tfjs-core'
import type {
  DeviceCollectives,
  DeviceCommunicator,
  DeviceFailure,
  DeviceReduction,
  PreparedReduction,
} from '../../tfjs/backend.ts'
import { tf } from '../../tfjs/tfjs.ts'
import type { BindingCollectives } from './binding-collectives.ts'
import { currentEager, type Eager } from './eager.ts'

/** The values of ncclRedOp_t. */
const reductions: Readonly<Record<DeviceReduction, number>> = { sum: 0, product: 1, avg: 4 }
const UNIQUE_ID_BYTES = 128
const none = new Int32Array(0)

type Communicator = ReturnType<BindingCollectives['open']>

/**
 * NCCL. TensorFlow's wheels for CUDA bring it, and `tsrun` tells its ranks where it is; TSRUN_NCCL_LIBRARY
 * names another one.
 *
 * @throws an error that says why it cannot be used
 */
export function collectives(): DeviceCollectives {
  const eager = currentEager()!
  const binding = eager.collectives
  if (binding === undefined) {
    throw new Error('the binding has no collectives: run `npx tsrun setup tensorflow --gpu`')
  }
  const path = process.env['TSRUN_NCCL_LIBRARY'] ?? 'libnccl.so.2'
  const version = binding.load(none, path)
  return new Nccl(eager, binding, version)
}

class Nccl implements DeviceCollectives {
  readonly library: string
  readonly device: string
  readonly #eager: Eager
  readonly #binding: BindingCollectives

  constructor(eager: Eager, binding: BindingCollectives, version: number) {
    this.#eager = eager
    this.#binding = binding
    this.library = `NCCL ${[Math.floor(version / 10_000), Math.floor(version / 100) % 100, version % 100].join('.')}`
    // On the host, where tests are, each process is a device.
    this.device = this.#onDevice((tensor) => binding.device(tensor)) || `process ${process.pid}`
  }

  uniqueId(): Uint8Array {
    const id = new Uint8Array(UNIQUE_ID_BYTES)
    this.#binding.uniqueId(none, id)
    return id
  }

  connect(id: Uint8Array, rank: number, size: number, timeout: number): DeviceCommunicator {
    // As received it may be another kind of array.
    const bytes = Uint8Array.from(id)
    const communicator = this.#onDevice((tensor) =>
      this.#binding.open(tensor, bytes, rank, size, timeout),
    )
    return new NcclCommunicator(this.#eager, this.#binding, communicator)
  }

  /** Calls the binding with any tensor on the device. */
  #onDevice<T>(call: (tensor: Int32Array) => T): T {
    const tensor = tf.zeros([1])
    try {
      return call(Int32Array.of(this.#eager.handleOf(tensor)))
    } finally {
      tensor.dispose()
    }
  }
}

class NcclCommunicator implements DeviceCommunicator {
  readonly #eager: Eager
  readonly #binding: BindingCollectives
  readonly #communicator: Communicator

  constructor(eager: Eager, binding: BindingCollectives, communicator: Communicator) {
    this.#eager = eager
    this.#binding = binding
    this.#communicator = communicator
  }

  prepare(tensors: readonly Tensor[]): PreparedReduction {
    const eager = this.#eager
    const binding = this.#binding
    const shapes = tensors.map(({ shape }) => shape)
    const [reduction, results] = binding.prepare(Int32Array.from(eager.handlesOf(tensors)))
    const free = (): void => {
      for (const handle of results) eager.free(handle)
    }
    return {
      run: (name, timeout) =>
        new Promise((resolve, reject) => {
          const operation = reductions[name]
          const done = (error?: string, timedOut = false): void => {
            if (error === undefined) {
              resolve(results.map((handle, i) => eager.take(handle, shapes[i]!)))
            } else {
              free()
              const failure: DeviceFailure = Object.assign(new Error(error), { timedOut })
              reject(failure)
            }
          }
          binding.allReduce(none, this.#communicator, reduction, operation, timeout, done)
        }),
      abandon: () => {
        binding.release(none, reduction)
        free()
      },
    }
  }

  close(): void {
    this.#binding.close(none, this.#communicator)
  }
}
