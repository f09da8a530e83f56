import type { Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import { host } from '@tsrun/core'
import { tf } from '@tsrun/training/backends'
import type { BindingKernels, Handle } from './binding-kernels.ts'
import { stagingArray } from './staging.ts'

/** Source: tfjs-node 4.22, `nodejs_kernel_backend.js`: the binding, and the table of tensors. */
export interface NodeBackend {
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
  readonly TF_ATTR_INT: number
  readonly TF_ATTR_FLOAT: number
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
  /** Absent in older bindings, and in bindings that tfjs-node itself has built. */
  readonly kernels?: BindingKernels | undefined
  /** Absent in the same bindings as `kernels`. Source: packages/doctor/src/setup/native/functions.h */
  readonly functions?:
    | {
        define(outputs: Int32Array, graph: Uint8Array, inputs: number, index: number): number
        call?(inputs: Int32Array, definition: number): Handle[]
      }
    | undefined
  /**
   * Whether TensorFlow has the operations of `native/operations.h`. Kernels of older bindings, which do not
   * have them, are not used.
   */
  readonly hasOperations?: true
}

interface TensorData {
  /** The handle of the tensor. It is negative if TensorFlow does not have the values. */
  id: Handle
  readonly shape: readonly number[]
  readonly dtype: number
  values: Float32Array | null
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

/** An input of an operation. A tensor remains the owner of its handle. */
export type Input = Handle | TensorInfo

/**
 * TensorFlow operations on float32 that bypass the TensorFlow.js engine. On small tensors, the engine
 * takes as long as the operation itself. Results are handles; `take` makes a tensor from a handle.
 */
export type Eager = ReturnType<typeof createEager>

function createEager(backend: NodeBackend) {
  const isOnHost = !backend.isUsingGpuDevice
  const { TF_FLOAT: float, TF_INT32: int32 } = backend.binding
  const attributesOf =
    <T>(type: number) =>
    (name: string, value: T) => ({ name, type, value })
  const typeAttribute = attributesOf<number>(backend.binding.TF_ATTR_TYPE)
  const flag = attributesOf<boolean>(backend.binding.TF_ATTR_BOOL)
  const decimal = attributesOf<number>(backend.binding.TF_ATTR_FLOAT)
  const integer = attributesOf<number>(backend.binding.TF_ATTR_INT)
  const floats = [typeAttribute('T', float)]
  const normsOf = (epsilon: number, isTraining: boolean) => [
    ...floats,
    typeAttribute('U', float),
    decimal('epsilon', epsilon),
    flag('is_training', isTraining),
  ]
  const products = [0, 1, 2, 3].map((which) => [
    flag('adj_x', (which & 1) !== 0),
    flag('adj_y', (which & 2) !== 0),
    ...floats,
  ])
  const losses = [...floats, typeAttribute('Tlabels', int32)]
  const sums = [...floats, typeAttribute('Tidx', int32), flag('keep_dims', false)]
  const variables = [typeAttribute('dtype', float)]
  /** The tensor [0], which selects the axis for the sum of a vector. It is never freed. */
  const firstAxis = backend.binding.createTensor([1], int32, new Int32Array(1))

  const handleOf = (input: Input) =>
    typeof input === 'number' ? input : backend.getInputTensorIds([input])[0]!
  // With a function as its second argument, Int32Array.from takes three times as long.
  const handlesOf = (inputs: readonly Input[]) => Int32Array.from(inputs.map(handleOf))
  // `observe` replaces the binding, so look it up at each call.
  const runAll = (
    name: string,
    attributes: readonly Attribute[],
    inputs: readonly Input[],
    outputs: number,
  ) => backend.binding.executeOp(name, attributes, inputs.map(handleOf), outputs)
  const run = (name: string, attributes: readonly Attribute[], inputs: readonly Input[]) =>
    runAll(name, attributes, inputs, 1)[0]!.id
  const hasOperations = () => isOnHost && backend.binding.hasOperations === true
  const kernels = () => (hasOperations() ? backend.binding.kernels : undefined)
  const copyIn = (source: Float32Array, shape: readonly number[]) =>
    // On the CPU, TensorFlow takes over the array; on a GPU, TensorFlow copies it.
    kernels()?.copyIn(Int32Array.from(shape), source)[0] ??
    backend.binding.createTensor(shape, float, isOnHost ? source.slice() : source)

  return {
    isOnHost,
    float,
    int32,
    threads: threadCount(),
    staging: stagingArray(),
    typeAttribute,

    get hasFunctions() {
      return backend.binding.functions?.call !== undefined
    },
    get kernels() {
      return kernels()
    },
    get hasOperations() {
      return hasOperations()
    },

    /**
     * Runs a computation with our kernels and functions disabled. Reports its calls to the binding to
     * `observer`.
     */
    observe<T>(observer: Observer, compute: () => T): T {
      const { binding } = backend
      const overrides: Partial<Binding> = {
        kernels: undefined,
        functions: undefined,
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
      const observed = Object.create(
        binding,
        Object.getOwnPropertyDescriptors(overrides),
      ) as Binding
      observer.created(firstAxis, [1], int32, new Int32Array(1))
      const now = tf.scalar(0)
      const first = now.id
      now.dispose()
      const lookUp = backend.getInputTensorIds.bind(backend)
      backend.binding = observed
      backend.getInputTensorIds = (tensors) => {
        const isOld = ({ id = first }: Partial<Tensor>): boolean => id < first
        const isOnlyHere = ({ dataId }: TensorInfo) =>
          backend.tensorMap.get(dataId)?.values !== null
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
    },

    /** Defines a function of TensorFlow. @returns the number of the function, for `call` */
    define(outputs: Int32Array, graph: Uint8Array, inputs: number, index: number) {
      return backend.binding.functions!.define(outputs, graph, inputs, index)
    },
    call(definition: number, inputs: readonly Input[]) {
      return backend.binding.functions!.call!(handlesOf(inputs), definition)
    },

    /** Returns TensorFlow's number for a dtype; undefined if a function cannot take that dtype. */
    typeOf(dtype: string): number | undefined {
      return { float32: float, int32 }[dtype]
    },

    /** Copies values from any device into `target`. Returns false if the binding cannot. */
    copyOut(tensor: TensorInfo, target: Float32Array) {
      const { kernels } = backend.binding
      kernels?.copyOut(Int32Array.of(handleOf(tensor)), target)
      return kernels !== undefined
    },

    copyIn,

    /**
     * Returns an int32 tensor as a float32 tensor of the same bits. As an argument of a function on a
     * GPU, TensorFlow would pass int32 through other threads. The caller frees the result.
     */
    bitsOf({ dataId, shape }: TensorInfo) {
      const { buffer, byteOffset, length } = tf.engine().readSync(dataId) as Int32Array
      return copyIn(new Float32Array(buffer, byteOffset, length), shape)
    },

    /** Whether a function takes a tensor of this dtype as the float32 tensor that `bitsOf` returns. */
    takesBits: ({ dtype }: TensorInfo) => dtype === 'int32' && !isOnHost,

    handleOf,
    handlesOf,

    /**
     * Batch norm with the statistics of x, or with `mean` and `variance` if not `isTraining`. Inputs: x
     * [batch, height, width, channels], scale, offset, mean and variance [channels]. With `isTraining`,
     * `momentum` is the weight of the statistics of x in the second and third output, which are the new
     * mean and unbiased variance; the others are the arguments of `batchNormGradient`.
     */
    batchNorm(inputs: readonly Input[], epsilon: number, isTraining: boolean, momentum = 1) {
      const attributes = [
        ...normsOf(epsilon, isTraining),
        decimal('exponential_avg_factor', momentum),
      ]
      return runAll('FusedBatchNormV3', attributes, inputs, 6)
    },
    /** Inputs: dy, x, scale, and the last three outputs of `batchNorm`. Outputs: dx, dscale, doffset. */
    batchNormGradient(inputs: readonly Input[], epsilon: number, isTraining: boolean) {
      const name = 'FusedBatchNormGradV3'
      const [dx, dScale, dOffset, ...rest] = runAll(name, normsOf(epsilon, isTraining), inputs, 5)
      for (const { id } of rest) backend.binding.deleteTensor(id)
      return [dx!, dScale!, dOffset!] as const
    },

    /** Creates a tensor that owns the handle. It outlives any tf.tidy. */
    take(id: Handle, shape: readonly number[]): Tensor {
      const dataId = {}
      backend.tensorMap.set(dataId, { id, shape, dtype: float, values: null, refCount: 1 })
      const info: TensorInfo = { dataId, shape: [...shape], dtype: 'float32' }
      return tf.keep(tf.engine().makeTensorFromTensorInfo(info))
    },

    /** Like `take`, but the open tf.tidy or recorded pass owns the tensor. */
    takeScoped(id: Handle, shape: readonly number[]): Tensor {
      const tensor = this.take(id, shape)
      tensor.kept = false
      return tensor
    },

    /** Creates a new tensor with the memory of the given one, and disposes the given one. */
    retake(tensor: Tensor): Tensor {
      const { dataId, shape, dtype } = tensor
      backend.incRef(dataId)
      const next = tf.keep(tf.engine().makeTensorFromTensorInfo({ dataId, shape, dtype }))
      tensor.dispose()
      return next
    },

    /** Whether no other tensor of TensorFlow.js shares the values of this tensor. */
    isAlone({ dataId }: TensorInfo) {
      const data = backend.tensorMap.get(dataId)
      return data?.refCount === 1 && data.values === null
    },

    free(handle: Handle) {
      backend.binding.deleteTensor(handle)
    },
    scalar: (value: number) => backend.binding.createTensor([], float, Float32Array.of(value)),

    /** Runs an operation of tsrun. The open tf.tidy or recorded pass owns the results. */
    operate(
      name: `Tsrun${string}`,
      attributes: Readonly<Record<string, number | boolean>>,
      inputs: readonly TensorInfo[],
      outputs: number,
    ): Tensor[] {
      const all = Object.entries(attributes).map(([name, value]) => {
        if (typeof value === 'boolean') return flag(name, value)
        return name === 'size' ? integer(name, value) : decimal(name, value)
      })
      const results = runAll(name, all, inputs, outputs)
      return results.map(({ id, shape }) => this.takeScoped(id, shape))
    },

    matMul(a: Input, b: Input, transposeA = false, transposeB = false) {
      const attributes = products[(transposeA ? 1 : 0) + (transposeB ? 2 : 0)]!
      // The operation MatMul is 10 % faster. But a signal handler that interrupts it may corrupt the heap.
      return run('BatchMatMulV2', attributes, [a, b])
    },
    addBias: (x: Input, bias: Input) => run('BiasAdd', floats, [x, bias]),
    biasGradient: (dy: Input) => run('BiasAddGrad', floats, [dy]),
    relu: (x: Input) => run('Relu', floats, [x]),
    /** Returns `dy` where the output of the ReLU is positive, else 0. */
    reluGradient: (dy: Input, output: Input) => run('ReluGrad', floats, [dy, output]),
    /** Returns `dy` times the slope of the sigmoid where its value is `output`. */
    sigmoidGradient: (output: Input, dy: Input) => run('SigmoidGrad', floats, [output, dy]),
    add: (a: Input, b: Input) => run('AddV2', floats, [a, b]),
    multiply: (a: Handle, b: Handle) => run('Mul', floats, [a, b]),
    sum: (x: Handle) => run('Sum', sums, [x, firstAxis]),

    /**
     * Computes the losses and their gradients for logits [batch, classes] and int32 labels [batch]. The
     * gradients are those of `weight` times the losses if `isScaled`.
     */
    crossEntropy(logits: Input, labels: Input, weight: number) {
      const isScaled = hasOperations()
      const name = isScaled ? 'TsrunCrossEntropy' : 'SparseSoftmaxCrossEntropyWithLogits'
      const attributes = isScaled ? [decimal('weight', weight)] : losses
      const [values, gradient] = runAll(name, attributes, [logits, labels], 2)
      return { losses: values!.id, gradient: gradient!.id, isScaled }
    },

    /** Returns the TensorFlow variable of this name. Variables are never freed. */
    variable(name: string) {
      const { TF_ATTR_SHAPE, TF_ATTR_STRING } = backend.binding
      const attributes = [
        ...variables,
        { name: 'shape', type: TF_ATTR_SHAPE, value: [] },
        { name: 'shared_name', type: TF_ATTR_STRING, value: `tsrun ${name}` },
      ]
      return run('VarHandleOp', attributes, [])
    },

    /**
     * Assigns the values of a tensor to a variable. Variable and tensor share memory until one of
     * them changes.
     */
    assign(variable: Handle, value: Input) {
      runAll('AssignVariableOp', variables, [variable, value], 0)
    },
    read: (variable: Handle) => run('ReadVariableOp', variables, [variable]),
    apply(name: string, inputs: readonly Input[]) {
      runAll(name, floats, inputs, 0)
    },
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
    eager = createEager(backend)
    contexts.set(backend, eager)
  }
  return eager
}
