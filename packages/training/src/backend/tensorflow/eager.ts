import type { DataType, Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import { host } from '@tsrun/core'
import { tf } from '../../tfjs/tfjs.ts'
import type { BindingKernels, Handle } from './binding-kernels.ts'

/** Source: tfjs-node 4.22, `nodejs_kernel_backend.js`: the binding, and the table of tensors. */
interface NodeBackend {
  binding: Binding
  readonly isUsingGpuDevice: boolean
  readonly tensorMap: {
    get(dataId: object): TensorData | null
    set(dataId: object, info: TensorData): void
  }
  getInputTensorIds(tensors: readonly TensorInfo[]): Handle[]
  incRef(dataId: object): void
}

interface Binding {
  readonly TF_FLOAT: number
  readonly TF_INT32: number
  readonly TF_ATTR_TYPE: number
  readonly TF_ATTR_BOOL: number
  readonly TF_ATTR_SHAPE: number
  readonly TF_ATTR_STRING: number
  executeOp(
    name: string,
    attributes: readonly Attribute[],
    inputs: readonly Handle[],
    outputs: number,
  ): readonly OutputInfo[]
  createTensor(shape: readonly number[], dtype: number, values: Float32Array | Int32Array): Handle
  tensorDataSync(id: Handle): ArrayBufferView
  deleteTensor(id: Handle): void
  /** Absent in a binding that tfjs-node itself has built. */
  readonly kernels?: BindingKernels | undefined
  /**
   * Absent in older bindings and in those that tfjs-node has built. Source:
   * packages/launcher/src/setup/native/functions.h
   */
  readonly functions?: {
    define(outputs: Int32Array, graph: Uint8Array, inputs: number, index: number): number
    call?(inputs: Int32Array, definition: number): Handle[]
  }
}

interface TensorData {
  readonly id: Handle
  readonly shape: readonly number[]
  readonly dtype: number
  readonly values: unknown
  refCount: number
}

export interface OutputInfo {
  readonly id: Handle
  readonly shape: number[]
  readonly dtype: number
}

/** Receives the calls to the binding while a computation runs. */
export interface Observer {
  executed(
    name: string,
    attributes: readonly Attribute[],
    inputs: readonly Handle[],
    outputs: readonly OutputInfo[],
  ): void
  created(handle: Handle, shape: readonly number[], dtype: number, values: unknown): void
  /** Called before the computation uses the values of a tensor that existed before. */
  broughtIn(): void
  read(handle: Handle): void
}

export interface Attribute {
  readonly name: string
  readonly type: number
  readonly value: unknown
}

/**
 * TensorFlow operations on float32 that bypass the TensorFlow.js engine. On small tensors, the engine
 * takes as long as the operation itself. Results are handles; `take` makes a tensor from a handle.
 */
export class Eager {
  readonly #backend: NodeBackend
  readonly #float: readonly Attribute[]
  readonly #products: readonly (readonly Attribute[])[]
  readonly #losses: readonly Attribute[]
  readonly #sums: readonly Attribute[]
  readonly #variables: readonly Attribute[]
  /** The tensor [0], which selects the axis for the sum of a vector. It is never freed. */
  readonly #firstAxis: Handle
  readonly isOnHost: boolean
  readonly float: number
  readonly int32: number
  readonly threads = threadCount()
  readonly staging = new StagingArray()

  constructor(backend: NodeBackend) {
    this.#backend = backend
    const { binding } = backend
    this.isOnHost = !backend.isUsingGpuDevice
    this.float = binding.TF_FLOAT
    this.int32 = binding.TF_INT32
    const dtype = this.typeAttribute.bind(this)
    const flag = (name: string, value: boolean): Attribute => ({
      name,
      type: binding.TF_ATTR_BOOL,
      value,
    })
    this.#float = [dtype('T', binding.TF_FLOAT)]
    this.#products = [0, 1, 2, 3].map((which) => [
      flag('adj_x', (which & 1) !== 0),
      flag('adj_y', (which & 2) !== 0),
      ...this.#float,
    ])
    this.#losses = [...this.#float, dtype('Tlabels', binding.TF_INT32)]
    this.#sums = [...this.#float, dtype('Tidx', binding.TF_INT32), flag('keep_dims', false)]
    this.#variables = [dtype('dtype', binding.TF_FLOAT)]
    this.#firstAxis = binding.createTensor([1], binding.TF_INT32, new Int32Array(1))
  }

  get #binding(): Binding {
    return this.#backend.binding
  }

  get hasFunctions(): boolean {
    return this.#binding.functions?.call !== undefined
  }

  /** Runs a computation with our kernels disabled. Reports its calls to the binding to `observer`. */
  observe<T>(observer: Observer, compute: () => T): T {
    const binding = this.#binding
    const overrides: Partial<Binding> = {
      kernels: undefined,
      executeOp(name, attributes, inputs, count) {
        const outputs = binding.executeOp(name, attributes, inputs, count)
        observer.executed(name, attributes, inputs, outputs)
        return outputs
      },
      createTensor(shape, dtype, values) {
        const handle = binding.createTensor(shape, dtype, values)
        observer.created(handle, shape, dtype, values)
        return handle
      },
      tensorDataSync(id) {
        observer.read(id)
        return binding.tensorDataSync(id)
      },
    }
    // The properties of the binding are read-only, so override them in a derived object.
    const observed = Object.create(binding, Object.getOwnPropertyDescriptors(overrides)) as Binding
    observer.created(this.#firstAxis, [1], binding.TF_INT32, new Int32Array(1))
    const backend = this.#backend
    const now = tf.scalar(0)
    const first = now.id
    now.dispose()
    const lookUp = backend.getInputTensorIds.bind(backend)
    backend.binding = observed
    backend.getInputTensorIds = (tensors) => {
      const isOld = ({ id = first }: Partial<Tensor>): boolean => id < first
      const isOnlyHere = ({ dataId }: TensorInfo) => backend.tensorMap.get(dataId)?.values !== null
      if (tensors.some((tensor) => isOld(tensor) && isOnlyHere(tensor))) observer.broughtIn()
      return lookUp(tensors)
    }
    try {
      return compute()
    } finally {
      backend.binding = binding
      // Remove the override, so that the method of the class applies again.
      delete (backend as Partial<NodeBackend>).getInputTensorIds
    }
  }

  /** Defines a function of TensorFlow. @returns the number of the function, for `call` */
  define(outputs: Int32Array, graph: Uint8Array, inputs: number, index: number): number {
    return this.#binding.functions!.define(outputs, graph, inputs, index)
  }

  call(definition: number, inputs: readonly Handle[]): Handle[] {
    return this.#binding.functions!.call!(Int32Array.from(inputs), definition)
  }

  typeAttribute(name: string, value: number): Attribute {
    return { name, type: this.#binding.TF_ATTR_TYPE, value }
  }

  /** Returns TensorFlow's number for a dtype; undefined if a function cannot take that dtype. */
  typeOf(dtype: DataType): number | undefined {
    return { float32: this.float, int32: this.int32 }[dtype as string]
  }

  get kernels(): BindingKernels | undefined {
    return this.isOnHost ? this.#binding.kernels : undefined
  }

  /**
   * Copies the values of a tensor on any device into `target`; false if the binding does not support
   * that.
   */
  copyOut(tensor: TensorInfo, target: Float32Array): boolean {
    const { kernels } = this.#binding
    kernels?.copyOut(Int32Array.of(this.handleOf(tensor)), target)
    return kernels !== undefined
  }

  /** Creates a tensor from a copy of an array. */
  copyIn(source: Float32Array, shape: readonly number[]): Handle {
    const binding = this.#binding
    if (this.kernels !== undefined) return this.kernels.copyIn(Int32Array.from(shape), source)[0]
    // On the CPU, TensorFlow takes over the array; on a GPU, TensorFlow copies it.
    return binding.createTensor(shape, binding.TF_FLOAT, this.isOnHost ? source.slice() : source)
  }

  /**
   * Returns an int32 tensor as a float32 tensor of the same bits. As an argument of a function on a
   * GPU, TensorFlow would pass int32 through other threads. The caller frees the result.
   */
  bitsOf(tensor: Tensor): Handle {
    const { buffer, byteOffset, length } = tf.engine().readSync(tensor.dataId) as Int32Array
    return this.copyIn(new Float32Array(buffer, byteOffset, length), tensor.shape)
  }

  /** Whether to pass a tensor to a function by `bitsOf`. */
  takesBits({ dtype }: TensorInfo): boolean {
    return dtype === 'int32' && !this.isOnHost
  }

  /** Returns the handle of a tensor. The tensor still owns the handle. */
  handleOf(tensor: TensorInfo): Handle {
    return this.#backend.getInputTensorIds([tensor])[0]!
  }

  handlesOf(tensors: readonly TensorInfo[]): Handle[] {
    return this.#backend.getInputTensorIds(tensors)
  }

  /** Creates a tensor that owns the handle. It outlives any tf.tidy. */
  take(id: Handle, shape: readonly number[]): Tensor {
    const dataId = {}
    const dtype = this.#binding.TF_FLOAT
    this.#backend.tensorMap.set(dataId, { id, shape, dtype, values: null, refCount: 1 })
    const info: TensorInfo = { dataId, shape: [...shape], dtype: 'float32' }
    return tf.keep(tf.engine().makeTensorFromTensorInfo(info))
  }

  /** Creates a new tensor with the memory of the given one, and disposes the given one. */
  retake(tensor: Tensor): Tensor {
    const { dataId, shape, dtype } = tensor
    this.#backend.incRef(dataId)
    const next = tf.keep(tf.engine().makeTensorFromTensorInfo({ dataId, shape, dtype }))
    tensor.dispose()
    return next
  }

  /** Whether no other tensor of TensorFlow.js shares the values of this tensor. */
  isAlone({ dataId }: TensorInfo): boolean {
    const data = this.#backend.tensorMap.get(dataId)
    return data?.refCount === 1 && data.values === null
  }

  free(handle: Handle): void {
    this.#binding.deleteTensor(handle)
  }

  scalar(value: number): Handle {
    return this.#binding.createTensor([], this.#binding.TF_FLOAT, Float32Array.of(value))
  }

  matMul(a: Handle, b: Handle, transposeA = false, transposeB = false): Handle {
    const attributes = this.#products[(transposeA ? 1 : 0) + (transposeB ? 2 : 0)]!
    // The operation MatMul is 10 % faster. But a signal handler that interrupts it may corrupt the heap.
    return this.#run('BatchMatMulV2', attributes, [a, b])
  }

  addBias(x: Handle, bias: Handle): Handle {
    return this.#run('BiasAdd', this.#float, [x, bias])
  }

  biasGradient(dy: Handle): Handle {
    return this.#run('BiasAddGrad', this.#float, [dy])
  }

  relu(x: Handle): Handle {
    return this.#run('Relu', this.#float, [x])
  }

  /** Returns `dy` where the output of the ReLU is positive, else 0. */
  reluGradient(dy: Handle, output: Handle): Handle {
    return this.#run('ReluGrad', this.#float, [dy, output])
  }

  add(a: Handle, b: Handle): Handle {
    return this.#run('AddV2', this.#float, [a, b])
  }

  multiply(a: Handle, b: Handle): Handle {
    return this.#run('Mul', this.#float, [a, b])
  }

  sum(x: Handle): Handle {
    return this.#run('Sum', this.#sums, [x, this.#firstAxis])
  }

  /** Computes the losses and their gradients for logits [batch, classes] and int32 labels [batch]. */
  crossEntropy(logits: Handle, labels: Handle): { losses: Handle; gradient: Handle } {
    const name = 'SparseSoftmaxCrossEntropyWithLogits'
    const [losses, gradient] = this.#binding.executeOp(name, this.#losses, [logits, labels], 2)
    return { losses: losses!.id, gradient: gradient!.id }
  }

  /** Returns the TensorFlow variable of this name. Variables are never freed. */
  variable(name: string): Handle {
    const { TF_ATTR_SHAPE, TF_ATTR_STRING } = this.#binding
    const attributes = [
      ...this.#variables,
      { name: 'shape', type: TF_ATTR_SHAPE, value: [] },
      { name: 'shared_name', type: TF_ATTR_STRING, value: `tsrun ${name}` },
    ]
    return this.#run('VarHandleOp', attributes, [])
  }

  /**
   * Assigns the values of a tensor to a variable. Variable and tensor share memory until one of
   * them changes.
   */
  assign(variable: Handle, value: Handle): void {
    this.#binding.executeOp('AssignVariableOp', this.#variables, [variable, value], 0)
  }

  read(variable: Handle): Handle {
    return this.#run('ReadVariableOp', this.#variables, [variable])
  }

  apply(name: string, inputs: readonly Handle[]): void {
    this.#binding.executeOp(name, this.#float, inputs, 0)
  }

  #run(name: string, attributes: readonly Attribute[], inputs: readonly Handle[]): Handle {
    return this.#binding.executeOp(name, attributes, inputs, 1)[0]!.id
  }
}

/** The largest number of elements of the staging array; larger tensors get a new array. */
const MOST_STAGED = 16 * 1024 * 1024

/** An array that is reused to fill new tensors. Allocating a new array would also clear it. */
class StagingArray {
  #array = new Float32Array(0)
  #isInUse = false

  /** Whether `size` values fit and no caller on the stack uses the array. */
  isFreeFor(size: number): boolean {
    return !this.#isInUse && size <= MOST_STAGED
  }

  /** Returns the `size` values that `fill` writes. They are valid until the next call. */
  filled(size: number, fill: (values: Float32Array) => void): Float32Array {
    if (this.#array.length < size) this.#array = new Float32Array(size)
    const values = this.#array.subarray(0, size)
    this.#isInUse = true
    try {
      fill(values)
    } finally {
      this.#isInUse = false
    }
    return values
  }
}

export function threadCount(): number {
  const set = Number(host.env['TF_NUM_INTRAOP_THREADS'])
  return set > 0 ? set : host.cores()
}

/** Keyed by backend object: a backend may be removed and registered again. */
const contexts = new WeakMap<object, Eager>()

/** Returns the operations of TensorFlow if the current backend is tensorflow, else undefined. */
export function currentEager(): Eager | undefined {
  const engine = tf.engine()
  if (engine.backendName !== 'tensorflow') return undefined
  const backend = engine.backend as unknown as NodeBackend
  let eager = contexts.get(backend)
  if (eager === undefined) {
    eager = new Eager(backend)
    contexts.set(backend, eager)
  }
  return eager
}
