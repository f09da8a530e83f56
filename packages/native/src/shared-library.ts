import { loadLibrary } from './libc.ts'

type NativeFunction<Arguments extends unknown[], Result> = (...args: Arguments) => Result

/** A shared library that the dynamic linker finds by its file name. */
export interface SharedLibrary {
  readonly name: string
  /** Binds a function from its C prototype. */
  bind<Arguments extends unknown[], Result>(prototype: string): NativeFunction<Arguments, Result>
  /** The address of an exported object; undefined if it does not exist. */
  symbol(name: string): number | undefined
}

/**
 * Opens the first library of a list that exists. Plug-ins that the library loads see its symbols.
 *
 * @returns undefined if none exists
 * @throws ERR_TSR_NATIVE_UNAVAILABLE
 */
export function openSharedLibrary(names: readonly string[]): SharedLibrary | undefined {
  for (const name of names) {
    const library = loadLibrary(name)
    if (library === undefined) continue
    return {
      name,
      bind: (prototype) => library.func(prototype),
      symbol: (symbol) => {
        try {
          return Number(library.symbol(symbol))
        } catch {
          return undefined
        }
      },
    }
  }
  return undefined
}
