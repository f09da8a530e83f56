import { argumentError, tsrError } from '@tsrun/core'
import type { SpanRecorder } from '@tsrun/distributed/record'
import type { Tensor } from '@tensorflow/tfjs-core'
import type { Parameter } from './parameter.ts'

/** Options of `record`. */
export interface RecordOptions {
  /**
   * Whether `backward` returns the gradient of the input. The first pipeline stage does not need that
   * gradient.
   */
  readonly needsInputGradient: boolean
  /**
   * Records the forward and backward pass as spans `F` and `B`. For a chain of segments, records a span
   * for each pass of a segment.
   */
  readonly recorder?: SpanRecorder | undefined
}

/**
 * A forward pass whose backward pass can run at any later time. Any number of recordings can exist at
 * once. Each one keeps its activations until `dispose()`.
 */
export interface Recording {
  /** The output, which the recording owns. */
  readonly value: Tensor

  /**
   * Runs the backward pass from `dy`, the gradient of the output. May be called at most once.
   *
   * @param dy - of the shape of `value`; the caller still owns it
   * @param onGradient - called once for each parameter on which the output depends, as soon as its
   *   gradient is complete, in reverse order of use; the callee owns the tensor
   * @returns the gradient of the input, which the caller disposes; undefined if it was not requested
   * @throws ERR_TSR_BACKWARD_TWICE, ERR_TSR_ARGUMENT when `dy` has another shape,
   *   ERR_TSR_STALE_RECORDING when a parameter that the pass still needs was replaced
   */
  backward(dy: Tensor, onGradient: GradientListener): Tensor | undefined

  /**
   * Computes only the gradient of the input, which the previous pipeline stage waits for.
   * `backwardParameters` computes the gradients of the parameters later. Together, both methods give the
   * same bits as `backward`. Absent in recordings without parameters.
   *
   * @throws the errors of `backward`
   */
  backwardInput?(dy: Tensor): Tensor | undefined

  /**
   * Computes the gradients of the parameters. Call at most once, after `backwardInput`.
   *
   * @throws ERR_TSR_BACKWARD_TWICE
   */
  backwardParameters?(onGradient: GradientListener): void

  /** Frees `value` and everything saved for the backward pass. */
  dispose(): void
}

/** The passes of a recording, without checks. Callers check the order; they call each method at most once. */
export type BackwardPasses = Omit<Required<Recording>, 'value'>

/**
 * Makes a recording that checks the order of its calls, and the gradient of its output.
 *
 * @param check - further checks before a backward pass
 */
export function checkedRecording(
  value: Tensor,
  passes: BackwardPasses,
  check?: () => void,
): Required<Recording> {
  let state: 'recorded' | 'halved' | 'spent' | 'disposed' = 'recorded'
  const expect = (expected: typeof state) => {
    if (state !== expected) throw tsrError('ERR_TSR_BACKWARD_TWICE', {})
  }
  const begin = (dy: Tensor) => {
    expect('recorded')
    checkOutputGradient(dy, value)
    check?.()
  }
  return {
    value,
    backward(dy, onGradient) {
      begin(dy)
      state = 'spent'
      return passes.backward(dy, onGradient)
    },
    backwardInput(dy) {
      begin(dy)
      state = 'spent'
      const gradient = passes.backwardInput(dy)
      state = 'halved'
      return gradient
    },
    backwardParameters(onGradient) {
      expect('halved')
      state = 'spent'
      passes.backwardParameters(onGradient)
    },
    dispose() {
      if (state === 'disposed') return
      state = 'disposed'
      passes.dispose()
    },
  }
}

/** Receives each gradient of a backward pass when it is complete, and owns it. */
export interface GradientListener {
  (parameter: Parameter, gradient: Tensor): void

  /**
   * The gradients of earlier passes, by parameter name. A pass may add to such a gradient in place
   * instead of calling the listener, if no other tensor shares the memory of the gradient.
   */
  readonly sums?: ReadonlyMap<string, Tensor>

  /** Host memory into which a pass may write gradients instead of calling the listener. */
  readonly memory?: GradientMemory
}

/** Host memory for gradients, such as the buckets of data parallel training. */
export interface GradientMemory {
  /** Returns the array for a parameter's gradient; undefined if the listener must be called instead. */
  placeOf(parameter: Parameter): GradientPlace | undefined

  /** Called instead of the listener when the gradient of `parameter` has been written. */
  written(parameter: Parameter): void
}

/** Host memory for the gradient of one parameter. */
export interface GradientPlace {
  /** The array for the gradient, in row-major order. */
  readonly values: Float32Array
  /** Whether to add the gradient to the values in the array instead of overwriting them. */
  readonly adds: boolean
}

/** Host memory for the gradients of several parameters. */
export interface GradientPlaces {
  readonly values: readonly Float32Array[]
  readonly adds: boolean
}

/**
 * Returns the arrays for the gradients of `parameters`. Returns undefined if a parameter has no array, or
 * if the pass must add to some arrays but overwrite others.
 */
export function placesOf(
  { memory }: GradientListener,
  parameters: readonly Parameter[],
): GradientPlaces | undefined {
  if (memory === undefined) return undefined
  if (new Set(parameters.map(({ name }) => name)).size !== parameters.length) return undefined
  const values: Float32Array[] = []
  let adds: boolean | undefined
  for (const parameter of parameters) {
    const place = memory.placeOf(parameter)
    if (place === undefined) return undefined
    adds ??= place.adds
    if (place.adds !== adds) return undefined
    values.push(place.values)
  }
  return adds === undefined ? undefined : { values, adds }
}

/** @throws ERR_TSR_ARGUMENT for a disposed tensor. A kernel would fail without naming the tensor */
export function checkAlive(name: string, tensor: Tensor): void {
  if (!tensor.isDisposed) return
  throw argumentError(
    name,
    'a disposed tensor',
    'a live one: dispose a recording only when its output is no longer needed',
  )
}

/**
 * @param parameter - a parameter of the module, to name the module in the error message
 * @param shape - one entry per axis: its size, or a name for an axis of any size. `...` stands for any
 *   number of leading axes
 * @throws ERR_TSR_ARGUMENT for a disposed tensor, and for one of another shape
 */
export function checkInput(
  x: Tensor,
  { name }: Parameter,
  shape: readonly (number | string)[],
): void {
  checkAlive(`the input of ${name}`, x)
  const sizes = shape[0] === '...' ? shape.slice(1) : shape
  const last = x.shape.slice(-sizes.length)
  const fits =
    x.dtype === 'float32' && sizes.every((size, i) => typeof size === 'string' || size === last[i])
  if (fits && (shape[0] === '...' ? last : x.shape).length === sizes.length) return
  throw argumentError(
    `the input of ${name}`,
    `a tensor of shape [${x.shape.join(', ')}]${x.dtype === 'float32' ? '' : `, ${x.dtype}`}`,
    `float32 [${shape.join(', ')}]`,
  )
}

/** @throws ERR_TSR_ARGUMENT when `dy` is disposed, or does not have the shape of `output` */
export function checkOutputGradient(dy: Tensor, output: Tensor): void {
  checkAlive('dy', dy)
  checkShape('dy', dy, output.shape, 'the shape of the output, ')
}

/**
 * @param what - text before the expected shape in the error message
 * @throws ERR_TSR_ARGUMENT when the tensor has another shape
 */
export function checkShape(
  name: string,
  { shape }: Tensor,
  expected: readonly number[],
  what = '',
): void {
  if (shape.join() === expected.join()) return
  throw argumentError(
    name,
    `a tensor of shape [${shape.join(', ')}]`,
    `${what}[${expected.join(', ')}]`,
  )
}

/**
 * A part of a model that contains no collectives and can be recorded, for example any module without
 * collectives.
 */
export interface LocalSegment {
  readonly parameters: readonly Parameter[]
  /** Computes the output by operations that the tape can differentiate. */
  forward(x: Tensor): Tensor
}

/** A collective between two local segments. All ranks must run the same exchanges in the same order. */
export interface Exchange {
  /**
   * @param x - the input; the caller does not dispose it before the promise has settled
   * @returns the output, which the caller disposes
   */
  forward(x: Tensor): Promise<Tensor>
  /** Returns the gradient of the input. Called only if that gradient is needed. */
  backward(dy: Tensor): Promise<Tensor>
}

/** A link of a chain of computations and collectives; see `recordSegments`. */
export type Segment = LocalSegment | Exchange

export function isLocal(segment: Segment): segment is LocalSegment {
  return 'parameters' in segment
}
