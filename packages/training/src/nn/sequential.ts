import { anything, argumentError, count, declareOptions, finite, type Rules } from '@tsrun/core'
import { describe } from '../model/describe.ts'
import {
  areRepeatable,
  buffersOf,
  operationsOf,
  parametersOf,
  type Module,
} from '../model/module.ts'
import { joinedOperations, type Operation } from '../model/operation.ts'
import type { Parameter } from '../model/parameter.ts'
import { checkInput, type Recording, type RecordOptions } from '../model/recording.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import { checkRange } from './initialize.ts'
import { isLinear, Linear } from './linear.ts'
import { applyLayers, recordLayers } from './record-layers.ts'

/** Applies its children one after the other. */
export class ModuleChain implements Module {
  readonly children: Record<string, Module>

  constructor(children: Readonly<Record<string, Module>>) {
    this.children = { ...children }
  }

  get layers(): readonly Module[] {
    return Object.values(this.children)
  }

  get parameters(): readonly Parameter[] {
    return parametersOf(this.children)
  }

  isRepeatable(x?: Tensor): boolean {
    return areRepeatable(this.layers, x)
  }

  operations(): readonly Operation[] | undefined {
    return joinedOperations(this.layers.map(operationsOf))
  }

  forward(x: Tensor): Tensor {
    return applyLayers(this.layers, x)
  }

  record(x: Tensor, options: RecordOptions): Recording {
    return recordLayers(this, this.layers, x, options)
  }
}

/**
 * Modules that are applied one after the other.
 *
 * @param children - the modules by name, in order; `parallelize` and checkpoints use these names
 * @throws ERR_TSR_ARGUMENT for anything but modules, and for two parameters with the same name
 *
 * @example
 * const model = new Sequential({
 *   hidden: new Linear({ name: 'hidden', inputs: 784, outputs: 128, activation: 'relu' }),
 *   head: new Linear({ name: 'head', inputs: 128, outputs: 10 }),
 * })
 */
export class Sequential extends ModuleChain {
  constructor(children: Readonly<Record<string, Module>>) {
    for (const [name, given] of Object.entries(children)) {
      const child = given as Partial<Module> | null | undefined
      if (typeof child?.forward === 'function' && Array.isArray(child.parameters)) continue
      throw argumentError(
        `the module ${name}`,
        describe(child),
        'a module, which has parameters and forward(x)',
      )
    }
    super(children)
    checkNames([...this.parameters, ...buffersOf(this)])
  }
}

/** Makes a layer of a {@link sequential} recipe from the layer's name. */
export type LayerFactory = (name: string) => Module

/**
 * A recipe for a `Sequential`, for `pipeline` and `build()`. It allocates nothing until the whole
 * model or a slice is built. A slice builds only its own layers.
 *
 * @param layers - functions that make the layers, by layer name, in order
 * @throws ERR_TSR_ARGUMENT for anything but functions, or for an empty recipe
 *
 * @example
 * const recipe = sequential({
 *   hidden: (name) => new Linear({ name, inputs: 784, outputs: 128, activation: 'relu' }),
 *   head: (name) => new Linear({ name, inputs: 128, outputs: 10 }),
 * })
 * const model = recipe.build()
 */
export function sequential(layers: Readonly<Record<string, LayerFactory>>) {
  const factories = Object.entries(layers)
  const wrong = factories.find(([, factory]) => typeof factory !== 'function')
  if (factories.length === 0 || wrong !== undefined) {
    throw argumentError(
      wrong === undefined ? 'layers' : `layer ${wrong[0]}`,
      wrong === undefined ? 'empty' : describe(wrong[1]),
      'functions that make a layer, as in (name) => new Linear({ name, ... })',
    )
  }
  const slice = (from: number, to: number) => {
    const part = factories.slice(...checkRange([from, to], factories.length))
    return new Sequential(Object.fromEntries(part.map(([name, make]) => [name, make(name)])))
  }
  return { layers: factories.length, build: () => slice(0, factories.length), slice }
}

/** Checks that names are unique: replicas and checkpoints identify parameters by name. */
function checkNames(parameters: readonly Parameter[]): void {
  const names = new Set<string>()
  for (const { name } of parameters) {
    if (names.has(name)) {
      throw argumentError(
        'parameters',
        `two ${name}`,
        'one parameter of that name: give each layer another name',
      )
    }
    names.add(name)
  }
}

/**
 * Makes a module from parameters and a function of the input and the parameters' values.
 *
 * @param parameters - by the names under which `forward` receives their values
 * @throws ERR_TSR_ARGUMENT for anything but parameters, and for two with the same name
 *
 * @example
 * const model = moduleOf(
 *   { w: createParameter('w', [3, 1], init.heUniform()), b: createParameter('b', [1], init.zeros)
 *   },
 *   (x, { w, b }) => tf.add(tf.matMul(x, w), b),
 * )
 */
export function moduleOf<K extends string>(
  parameters: Readonly<Record<K, Parameter>>,
  forward: (x: Tensor, values: Readonly<Record<K, Tensor>>) => Tensor,
): Module {
  const entries = Object.entries(parameters) as [K, Parameter][]
  for (const [key, parameter] of entries) {
    const { name, value } = (parameter as Partial<Parameter> | null | undefined) ?? {}
    if (typeof name === 'string' && typeof value === 'object' && 'dataId' in value) continue
    throw argumentError(
      `the parameter ${key}`,
      describe(parameter),
      'a parameter: createParameter(name, shape, values)',
    )
  }
  const all = entries.map(([, parameter]) => parameter)
  checkNames(all)
  const values = () => Object.fromEntries(entries.map(([key, { value }]) => [key, value]))
  return {
    parameters: all,
    forward: (x) => tf.tidy(() => forward(x, values() as Record<K, Tensor>)),
  }
}

/** Options of `shardedMLP`. */
export interface ShardedMLPOptions {
  /** The number of linear layers; default 16. */
  readonly layers?: number
  /** The number of values of an example; default 784, an image of 28 x 28. */
  readonly inputs?: number
  /** The width of the hidden layers; default 128. */
  readonly hidden?: number
  /** The number of classes; default 10. */
  readonly outputs?: number
  /** The seed of the initial values, which also depend on the names of the parameters; default 0. */
  readonly seed?: number
  /** Builds only the layers [from, to); default: all layers. */
  readonly range?: readonly [from: number, to: number]
}

const size = count({ from: 1 })

const readOptions = declareOptions({
  layers: size.default(16),
  inputs: size.default(784),
  hidden: size.default(128),
  outputs: size.default(10),
  seed: finite().default(0),
  range: anything<readonly [number, number]>(),
} satisfies Rules<ShardedMLPOptions>)

/**
 * A multi-layer perceptron that can be built in parts. There is a ReLU between any two linear layers.
 *
 * A part [from, to) allocates only its own parameters (`layers.<index>.weight`, `layers.<index>.bias`).
 * They have the same names and bitwise the same values as in the whole model.
 *
 * @throws ERR_TSR_ARGUMENT when a size or the range is invalid, or for an unknown option
 */
export class ShardedMLP extends ModuleChain {
  constructor(options: ShardedMLPOptions = {}) {
    const { layers, inputs, hidden, outputs, seed, range } = readOptions(options)
    const [from, to] = checkRange(range, layers)
    const children: Record<string, Module> = {}
    for (let i = from; i < to; i++) {
      const name = `layers.${i}`
      const isLast = i === layers - 1
      children[name] = new Linear({
        name,
        inputs: i === 0 ? inputs : hidden,
        outputs: isLast ? outputs : hidden,
        activation: isLast ? 'linear' : 'relu',
        seed,
      })
    }
    super(children)
  }

  override record(x: Tensor, options: RecordOptions): Recording {
    const [first] = this.layers
    if (isLinear(first!)) checkInput(x, first.weight, ['batch', first.weight.shape[0]!])
    return super.record(x, options)
  }
}

/**
 * A recipe for a `ShardedMLP`. It allocates nothing until the whole model or a slice is built.
 *
 * @throws ERR_TSR_ARGUMENT for an invalid or unknown option
 */
export function shardedMLP(options: Omit<ShardedMLPOptions, 'range'> = {}) {
  const { layers } = readOptions(options)
  return {
    layers,
    build: () => new ShardedMLP(options),
    slice: (from: number, to: number) => new ShardedMLP({ ...options, range: [from, to] }),
  }
}
