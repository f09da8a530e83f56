import { argumentError } from '@tsrun/core'
import { describe } from '../model/describe.ts'
import { areRepeatable, buffersOf, parametersOf, type Module } from '../model/module.ts'
import type { Parameter } from '../model/parameter.ts'
import type { Recording, RecordOptions } from '../model/recording.ts'
import type { LinearLayer } from '../tfjs/backend.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import { checkRange } from './initialize.ts'
import { recordLinearStack } from './linear-stack.ts'
import { isLinear, isStackable } from './linear.ts'

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

  forward(x: Tensor): Tensor {
    return tf.tidy(() => this.layers.reduce((h, layer) => layer.forward(h), x))
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
    for (const [name, child] of Object.entries(children)) checkModule(name, child)
    super(children)
    checkNames([...this.parameters, ...buffersOf(this)])
  }

  /** Does not use the tape if `recordLinearStack` supports all modules. */
  record(x: Tensor, options: RecordOptions): Recording {
    const stack = x.rank === 2 ? stackOf(this.layers) : undefined
    return recordLinearStack(this, stack, x, options)
  }
}

/** Returns the layers if `recordLinearStack` can record them together; else undefined. */
export function stackOf(layers: readonly Module[]): readonly LinearLayer[] | undefined {
  const stackable = layers.flatMap((layer) =>
    isLinear(layer) && isStackable(layer) ? [layer] : [],
  )
  return layers.length > 0 && stackable.length === layers.length ? stackable : undefined
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

function checkModule(name: string, child: Partial<Module> | null | undefined): void {
  if (typeof child?.forward === 'function' && Array.isArray(child.parameters)) return
  throw argumentError(
    `the module ${name}`,
    describe(child),
    'a module, which has parameters and forward(x)',
  )
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
  for (const [key, parameter] of entries) checkParameter(key, parameter)
  const all = entries.map(([, parameter]) => parameter)
  checkNames(all)
  const values = () => Object.fromEntries(entries.map(([key, { value }]) => [key, value]))
  return {
    parameters: all,
    forward: (x) => tf.tidy(() => forward(x, values() as Record<K, Tensor>)),
  }
}

function checkParameter(key: string, parameter: Partial<Parameter> | null | undefined): void {
  const { name, value } = parameter ?? {}
  if (typeof name === 'string' && typeof value === 'object' && 'dataId' in value) return
  throw argumentError(
    `the parameter ${key}`,
    describe(parameter),
    'a parameter: createParameter(name, shape, values)',
  )
}
