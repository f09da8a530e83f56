/**
 * Module hooks, which Node runs in a separate thread. The fast path handles ES modules in TypeScript
 * with complete import specifiers, as Node 22.18 and later require: their types are stripped once and
 * the result is cached. Anything else, such as imports of `./lib` or `./lib.js` for lib.ts, CommonJS or path
 * aliases, switches the process to tsx.
 */
import { readFileSync } from 'node:fs'
import { createRequire, type LoadHook, type ResolveHook } from 'node:module'
import { dirname, extname } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { openCompiler } from './compile.ts'
import { findUp, readSettings } from './settings.ts'

interface Tsx {
  initialize(data: object): void | Promise<void>
  readonly resolve: ResolveHook
  readonly load: LoadHook
}

export interface LoaderData {
  /** The URL of tsx's entry file. */
  readonly tsx: string
  /** The folder of the script. */
  readonly folder: string
}

let tsxUrl = ''
let tsconfig: string | undefined
let loaders: string[] = []
let tsx: Promise<Tsx> | undefined
/** The fast path; undefined if tsx runs everything. */
let compile: ReturnType<typeof openCompiler> | undefined

export function initialize({ tsx: url, folder }: LoaderData): void {
  tsxUrl = url
  // Prefer the script's folder, because the current folder may be the root of several packages.
  tsconfig = findUp('tsconfig.json', folder) ?? findUp('tsconfig.json', process.cwd())
  const require = createRequire(url)
  const manifests = ['tsx/package.json', 'esbuild/package.json'].map((name) =>
    require.resolve(name),
  )
  loaders = manifests.map((manifest) => new URL('./', pathToFileURL(manifest)).href)
  const settings = readSettings(tsconfig, process.env)
  if (settings === undefined) tsx = loadTsx()
  else compile = openCompiler(url, settings)
}

export const resolve: ResolveHook = async (specifier, context, next) => {
  if (isOfLoader(context.parentURL)) return next(specifier, context)
  if (tsx === undefined) {
    try {
      const resolved = await next(specifier, context)
      const kind = kindOf(resolved.url)
      if (kind === 'typescript') return { ...resolved, format: 'module' }
      if (kind === 'javascript') return resolved
    } catch (error) {
      if (isPackage(specifier)) throw error
    }
    tsx ??= loadTsx()
  }
  return (await tsx).resolve(specifier, context, next)
}

export const load: LoadHook = async (url, context, next) => {
  if (!url.startsWith('file:') || isOfLoader(url)) return next(url, context)
  if (compile !== undefined && kindOf(url) === 'typescript') {
    const path = fileURLToPath(url)
    const source = await compile(path, readFileSync(path, 'utf8'))
    return { format: 'module', source, shortCircuit: true }
  }
  return tsx === undefined ? next(url, context) : (await tsx).load(url, context, next)
}

async function loadTsx(): Promise<Tsx> {
  const hooks = pathToFileURL(createRequire(tsxUrl).resolve('tsx/esm')).href
  const loaded = (await import(hooks)) as Tsx
  const isChosen = process.env['TSX_TSCONFIG_PATH'] !== undefined
  await loaded.initialize(isChosen || tsconfig === undefined ? {} : { tsconfig })
  return loaded
}

/** Node also calls these hooks for tsx's own imports. Loading tsx must not wait for tsx. */
function isOfLoader(url: string | undefined): boolean {
  return url === import.meta.url || loaders.some((folder) => url?.startsWith(folder) === true)
}

/** Whether a package or a built-in module is imported. tsx resolves these in the same way as Node. */
function isPackage(specifier: string): boolean {
  return /^(@[^/]+\/)?[^./][^/]*$/.test(specifier)
}

/** The loader of a URL: Node (`javascript`) or the fast path (`typescript`); undefined: tsx. */
function kindOf(url: string): 'typescript' | 'javascript' | undefined {
  if (!url.startsWith('file:')) return 'javascript'
  const { pathname, search } = new URL(url)
  const extension = extname(pathname)
  if (['.js', '.mjs', '.cjs', '.node', '.wasm'].includes(extension)) return 'javascript'
  if (search !== '' || pathname.includes('/node_modules/')) return undefined
  const isModule =
    extension === '.mts' || (extension === '.ts' && isInModule(dirname(fileURLToPath(url))))
  return isModule ? 'typescript' : undefined
}

const folders = new Map<string, boolean>()

/** Whether the nearest package.json declares the files of a folder as ES modules. */
function isInModule(folder: string): boolean {
  const known = folders.get(folder)
  if (known !== undefined) return known
  const manifest = findUp('package.json', folder)
  const text = manifest === undefined ? '{}' : readFileSync(manifest, 'utf8')
  const isModule = (JSON.parse(text) as { type?: unknown }).type === 'module'
  folders.set(folder, isModule)
  return isModule
}
