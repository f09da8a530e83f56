import type { Tensor } from '@tensorflow/tfjs-core'
import type { Parameter } from './parameter.ts'
import type { Recording, RecordOptions } from './recording.ts'
import type { Segment } from './segment.ts'

/** A piece of a model: named parameters and a function of one tensor. */
export interface Module {
  readonly parameters: readonly Parameter[]

  /**
   * Values that forward passes change and optimizers do not, such as the running statistics of
   * `BatchNorm`. They are float32 and saved in checkpoints like parameters. After each step, replicas
   * take the values of the first replica. Lists only the module's own buffers; `buffersOf` adds the
   * buffers of `children` and `layers`.
   */
  readonly buffers?: readonly Parameter[]

  /**
   * Returns the output for `x`. Uses operations of TensorFlow.js, so that the tape can differentiate it.
   */
  forward(x: Tensor): Tensor

  /** Records a forward pass without the tape, if the module has a faster way. */
  record?(x: Tensor, options: RecordOptions): Recording

  /**
   * The modules that this one contains, by name. `forward` calls them through this object, so that they
   * can be replaced; see `parallelize`.
   */
  readonly children?: Record<string, Module>

  /** The modules in order, if `forward` calls one after another. */
  readonly layers?: readonly Module[]

  /**
   * The parts of a `forward` that contains collectives, in their order, for `recordSegments`.
   *
   * @throws ERR_TSR_BACKEND when it cannot be split, and the backend cannot wait inside a pass
   */
  segments?(): readonly Segment[]

  /**
   * Whether `forward` reads the current pass, like `Dropout`; see `inPass`. A module need not set it if
   * one of its `children` does. Default false.
   */
  readonly usesPass?: boolean

  /**
   * Whether its passes communicate with replicas, like those of `BatchNorm`. A rank without examples
   * then runs an empty pass, so that the other ranks need not wait for it. Default false.
   */
  readonly communicates?: boolean

  /**
   * Whether `forward` runs the same operations, with the same numbers, for each input of the shape of
   * `x`, so that a backend may record them once and repeat them; default false. Called before each pass,
   * instead of `forward`'s checks of the values of `x`.
   *
   * @param x - undefined for a module whose input is the output of another module
   * @throws the errors of `forward` for invalid values
   */
  isRepeatable?(x?: Tensor): boolean

  /** The kind of the module, for code that replaces modules. */
  readonly kind?: string
}

/** A module that can compute with other tensors in place of its parameters. */
export interface Separable extends Module {
  /** Runs `forward` with `values` in place of the values of the parameters. */
  forwardWith(values: readonly Tensor[], x: Tensor): Tensor
}

/** Returns the parameters of all children, each once. */
export function parametersOf(children: Readonly<Record<string, Module>>): readonly Parameter[] {
  return [...new Set(Object.values(children).flatMap(({ parameters }) => parameters))]
}

/** Anything that may have buffers, such as a module or a pipeline. */
export interface Buffered {
  readonly buffers?: readonly Parameter[]
  readonly children?: Record<string, Module>
  readonly layers?: unknown
}

/** The buffers of a module and of all modules inside it, each once. */
export function buffersOf({ buffers = [], children = {}, layers }: Buffered): readonly Parameter[] {
  const list = Array.isArray(layers) ? (layers as Buffered[]) : []
  const inside: Buffered[] = [...Object.values(children), ...list]
  return [...new Set([...buffers, ...inside.flatMap(buffersOf)])]
}

/** Whether the module, or one inside it, reads the current pass. */
export function usesPass(module: Module): boolean {
  return module.usesPass ?? insideOf(module).some(usesPass)
}

/** Whether the module, or one inside it, communicates with replicas in its passes. */
export function communicates(
  module: Pick<Module, 'communicates' | 'children' | 'layers'>,
): boolean {
  return module.communicates ?? insideOf(module).some(communicates)
}

/** Whether modules applied in sequence are repeatable; `x` is the input of the first. */
export function areRepeatable(modules: readonly Module[], x?: Tensor): boolean {
  return modules.every((module, i) => isRepeatable(module, i === 0 ? x : undefined))
}

/**
 * Whether the module is repeatable. A subclass that overrides `forward` must override `isRepeatable`
 * too.
 */
export function isRepeatable(module: Module, x?: Tensor): boolean {
  let part: object = module
  while (!Object.hasOwn(part, 'isRepeatable') && !Object.hasOwn(part, 'forward')) {
    part = Object.getPrototypeOf(part) as object
  }
  return Object.hasOwn(part, 'isRepeatable') && module.isRepeatable!(x)
}

/** The module and all modules inside it, each once. */
export function partsOf(module: Module, found = new Set<Module>()): readonly Module[] {
  found.add(module)
  for (const inside of insideOf(module)) if (!found.has(inside)) partsOf(inside, found)
  return [...found]
}

function insideOf({
  children = {},
  layers = [],
}: Pick<Module, 'children' | 'layers'>): readonly Module[] {
  return [...Object.values(children), ...layers]
}

/** Frees the values of all parameters and buffers. */
export function disposeModule(module: Module): void {
  const all = new Set([...module.parameters, ...buffersOf(module)])
  for (const { value } of all) value.dispose()
}

/** A module inside another one. */
export interface NamedModule {
  /** The path to the module, with dots: `h.0.attn.c_attn`. */
  readonly name: string
  readonly module: Module
  readonly replace: (next: Module) => void
}

/** Yields all modules inside `model`, each before its own children. */
export function* modulesOf(model: Module, prefix = ''): Generator<NamedModule> {
  const { children = {} } = model
  for (const [key, module] of Object.entries(children)) {
    const name = `${prefix}${key}`
    let current = module
    const replace = (next: Module): void => {
      children[key] = next
      current = next
    }
    yield { name, module, replace }
    // Do not visit the modules inside a replacement.
    if (current === module) yield* modulesOf(module, `${name}.`)
  }
}
