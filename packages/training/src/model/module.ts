import type { Tensor } from '@tensorflow/tfjs-core'
import type { Operation } from './operation.ts'
import type { Parameter } from './parameter.ts'
import type { Recording, RecordOptions, Segment } from './recording.ts'

/** A part of a model: named parameters, and a function of one tensor. */
export interface Module {
  readonly parameters: readonly Parameter[]

  /**
   * The module's own buffers: float32 tensors that forward passes change and optimizers do not, such as
   * the running statistics of `BatchNorm`. Checkpoints contain them. After each step, replicas copy the
   * buffers of the first replica. `buffersOf` adds the buffers of `children` and `layers`.
   */
  readonly buffers?: readonly Parameter[]

  /** Computes the output for `x` by operations of TensorFlow.js, so that the tape can differentiate it. */
  forward(x: Tensor): Tensor

  /** Records a forward pass. Present if the module has a faster way than the tape. */
  record?(x: Tensor, options: RecordOptions): Recording

  /** The operations of `forward`, in order; undefined unless all of them are known. */
  operations?(): readonly Operation[] | undefined

  /**
   * The modules inside this one, by name. `forward` must call them through this object, so that
   * `parallelize` can replace them.
   */
  readonly children?: Record<string, Module>

  /** The modules in order, if `forward` only applies them one after another. */
  readonly layers?: readonly Module[]

  /**
   * Splits a `forward` that contains collectives into its parts, in order; see `recordSegments`.
   *
   * @throws ERR_TSR_BACKEND when `forward` cannot be split, and the backend cannot wait inside a pass
   */
  segments?(): readonly Segment[]

  /**
   * Whether `forward` reads the current pass, like `Dropout` does; see `inPass`. Only needed if none of
   * `children` sets it. Default false.
   */
  readonly usesPass?: boolean

  /**
   * Whether passes of the module communicate with other replicas, like those of `BatchNorm`. A rank
   * without examples then runs an empty pass, because the other ranks wait for it. Default false.
   */
  readonly communicates?: boolean

  /**
   * Whether `forward` runs the same operations with the same numbers for every input of the shape of `x`.
   * A backend may then record the operations once and repeat them. Called before each pass. A repeated
   * pass skips `forward`, so this method must check the values of `x` instead. Default false.
   *
   * @param x - undefined for a module whose input is the output of another module
   * @throws the errors of `forward` for invalid values
   */
  isRepeatable?(x?: Tensor): boolean

  /** The kind of the module, by which `parallelize` and adapters identify it. */
  readonly kind?: string
}

/** A module whose forward pass can use given tensors in place of its parameters. */
export interface Separable extends Module {
  /** Runs `forward` with `values` in place of the values of the parameters. */
  forwardWith(values: readonly Tensor[], x: Tensor): Tensor
}

/** Returns a type guard for modules of a kind. Every module of this `kind` must have the type `M`. */
export function ofKind<M extends Module>(kind: M['kind']): (module: Module) => module is M {
  return (module): module is M => module.kind === kind
}

/** Returns the parameters of all children, without duplicates. */
export function parametersOf(children: Readonly<Record<string, Module>>): readonly Parameter[] {
  return [...new Set(Object.values(children).flatMap(({ parameters }) => parameters))]
}

/** An object that may have buffers, such as a module or a pipeline. */
export interface Buffered {
  readonly buffers?: readonly Parameter[]
  readonly children?: Record<string, Module>
  readonly layers?: unknown
}

/** Returns the buffers of a module and of all modules inside it, without duplicates. */
export function buffersOf(module: Buffered): readonly Parameter[] {
  return [...new Set([...(module.buffers ?? []), ...insideOf(module).flatMap(buffersOf)])]
}

/** Whether the module or a module inside it reads the current pass. */
export function usesPass(module: Module): boolean {
  return module.usesPass ?? insideOf(module).some(usesPass)
}

/** Whether the module or a module inside it communicates with other replicas in its passes. */
export function communicates(
  module: Pick<Module, 'communicates' | 'children' | 'layers'>,
): boolean {
  return module.communicates ?? insideOf(module).some(communicates)
}

/** Whether modules that are applied in sequence are all repeatable. `x` is the input of the first one. */
export function areRepeatable(modules: readonly Module[], x?: Tensor): boolean {
  return modules.every((module, i) => isRepeatable(module, i === 0 ? x : undefined))
}

/**
 * Whether the module is repeatable; see `Module.isRepeatable`. False for a subclass that overrides
 * `forward` but not `isRepeatable`.
 */
export function isRepeatable(module: Module, x?: Tensor): boolean {
  return fitsForward(module, 'isRepeatable') && module.isRepeatable!(x)
}

/** The operations of a module; see `Module.operations`. */
export function operationsOf(module: Module): readonly Operation[] | undefined {
  return fitsForward(module, 'operations') ? module.operations!() : undefined
}

/** Whether the module has a method that describes its `forward`, which a subclass may have overridden alone. */
export function fitsForward(
  module: Module,
  method: 'isRepeatable' | 'operations' | 'record',
): boolean {
  let part: object | null = module
  while (part !== null && !Object.hasOwn(part, method) && !Object.hasOwn(part, 'forward')) {
    part = Object.getPrototypeOf(part) as object | null
  }
  return part !== null && Object.hasOwn(part, method) && module[method] !== undefined
}

/** Returns the layers of a model in order; without `layers`, the model; without `forward`, nothing. */
export function chainOf(model: Partial<Module>): readonly Module[] {
  if (model.forward === undefined) return []
  return model.layers ?? [model as Module]
}

/** Returns the module and all modules inside it, without duplicates. */
export function partsOf(module: Module, found = new Set<Module>()): readonly Module[] {
  found.add(module)
  for (const inside of insideOf(module)) if (!found.has(inside)) partsOf(inside, found)
  return [...found]
}

function insideOf({ children = {}, layers }: Buffered): readonly Module[] {
  return [...Object.values(children), ...(Array.isArray(layers) ? (layers as Module[]) : [])]
}

/** Frees the values of all parameters and buffers of a module. */
export function disposeModule(module: Module): void {
  const all = new Set([...module.parameters, ...buffersOf(module)])
  for (const { value } of all) value.dispose()
}

/** A module inside a model, with its name. */
export interface NamedModule {
  /** The dotted path to the module, for example `h.0.attn.c_attn`. */
  readonly name: string
  readonly module: Module
  readonly replace: (next: Module) => void
}

/** Yields all modules inside `model`. Each module comes before its children. */
export function* modulesOf(model: Pick<Module, 'children'>, prefix = ''): Generator<NamedModule> {
  const { children = {} } = model
  for (const [key, module] of Object.entries(children)) {
    const name = `${prefix}${key}`
    let current = module
    const replace = (next: Module) => {
      children[key] = next
      current = next
    }
    yield { name, module, replace }
    // If the caller has replaced the module, skip the modules inside the replacement.
    if (current === module) yield* modulesOf(module, `${name}.`)
  }
}
