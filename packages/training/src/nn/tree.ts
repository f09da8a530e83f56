import type { Module } from './module.ts'

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
