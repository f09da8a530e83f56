import type { Tensor } from '@tensorflow/tfjs-core'
import type { Recording, RecordOptions } from './recording.ts'
import type { Segment } from './segment.ts'
import type { Parameter } from './parameter.ts'

/** A piece of a model: named parameters and a function of one tensor. */
export interface Module {
  readonly parameters: readonly Parameter[]

  /** The output for `x`; differentiable with the tape, as it uses TensorFlow.js operations only. */
  forward(x: Tensor): Tensor

  /** The module's own forward and backward pass, where it has a faster one than the tape. */
  record?(x: Tensor, options: RecordOptions): Recording

  /**
   * The modules that this one is made of, by name. `forward` calls those that are here: others may
   * take their places, see `parallelize`.
   */
  readonly children?: Record<string, Module>

  /** Where `forward` is that of one module after the other: those, in their order. */
  readonly layers?: readonly Module[]

  /**
   * Where `forward` contains collectives: the parts between which they are, in their order, for
   * `recordSegments`. `forward` does all of it at once.
   *
   * @throws ERR_TSR_BACKEND where it cannot be cut, and the backend cannot wait inside a pass
   */
  segments?(): readonly Segment[]

  /** What it is, for those who put others in its place. */
  readonly kind?: ModuleKind
}

type ModuleKind =
  | 'attention'
  | 'linear'
  | 'joint-linear'
  | 'embedding'
  | 'positions'
  | 'head'
  | 'column-parallel'
  | 'sequence-parallel'

/** A module whose parameters may be something made of them. */
export interface Separable extends Module {
  /** `forward` with these in the place of the values of the parameters. */
  forwardWith(values: readonly Tensor[], x: Tensor): Tensor
}

/** Those of all children, each once. */
export function parametersOf(children: Readonly<Record<string, Module>>): readonly Parameter[] {
  return [...new Set(Object.values(children).flatMap(({ parameters }) => parameters))]
}

/** Frees the values of all parameters. */
export function disposeModule(module: Module): void {
  for (const parameter of new Set(module.parameters)) parameter.value.dispose()
}

/** A module inside another one. */
export interface NamedModule {
  /** The names on the way to it, between dots: `h.0.attn.c_attn`. */
  readonly name: string
  readonly module: Module
  /** Puts another one in its place. */
  readonly replace: (next: Module) => void
}

/** All modules inside `model`, each before those that it is made of. */
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
    // those of the one that was put in its place are its own matter
    if (current === module) yield* modulesOf(module, `${name}.`)
  }
}
