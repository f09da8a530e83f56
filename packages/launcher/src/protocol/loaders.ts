/** A module that Node preloads by an option such as `--import`. */
export interface Preload {
  readonly option: string
  readonly name: string
}

/** Matches `--loader x`, `--import x` and `-r x`, each also with `=`. */
const PRELOADED = /(?:^|\s)(--(?:experimental-)?loader|--import|--require|-r)[\s=]+(\S+)/g

/** Matches packages that run TypeScript, by name, path or URL. */
const LOADERS =
  /(^|\/)(tsx|ts-node|tsm|jiti|sucrase|amaro|ts-blank-space|esbuild-\w+|@(swc|swc-node|oxc-node|babel|esbuild-kit)\/[\w-]+)(\/|$)/

/** @param nodeOptions - NODE_OPTIONS and the arguments of Node */
export function preloadedBy(nodeOptions: string): Preload[] {
  const found = nodeOptions.matchAll(PRELOADED)
  return Array.from(found, ([, option = '', name = '']) => ({ option, name }))
}

export function isTypescriptLoader({ name }: Preload): boolean {
  return LOADERS.test(name)
}

/** Whether the user preloads a loader for TypeScript or other languages. */
export function hasLoader(nodeOptions: string): boolean {
  return preloadedBy(nodeOptions).some(
    (preload) => preload.option.endsWith('loader') || isTypescriptLoader(preload),
  )
}
