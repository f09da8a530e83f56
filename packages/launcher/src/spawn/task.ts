import { existsSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { Script as Syntax } from 'node:vm'
import { argumentError, shown } from '@tsrun/core'
import { findScript, type Script } from '../job/code/script.ts'
import type { Task } from './messages.ts'
import type { CompleteOptions } from './options.ts'

/** A task, and the file whose extension says in which language it is written. */
export interface PlannedTask {
  readonly task: Task
  readonly code: Script
}

/** What the ranks run: a function, or the path or URL of a module. */
export type Program = ((rank: number, ...args: never) => unknown) | string | URL

/**
 * Decides how the ranks get the program.
 *
 * @throws ERR_TSR_ARGUMENT for a function without source; ERR_TSR_SCRIPT for a file that does not exist
 */
export function planTask(program: Program, options: CompleteOptions): PlannedTask {
  const { base, export: entry } = options
  if (typeof program === 'function') {
    if (entry !== undefined) {
      throw argumentError('export', shown(entry), 'none with a function, which is called itself')
    }
    const path = pathOf(base ?? process.argv[1] ?? join(process.cwd(), 'eval.js'))
    const known = base === undefined ? undefined : findScript(path, '/')
    const code = known ?? languageOf(path)
    const name = program.name === '' ? 'function' : program.name
    const source = sourceOf(program)
    return { task: { kind: 'function', source, path: `${path}#${name}` }, code }
  }
  if (typeof program !== 'string' && !isUrl(program)) {
    throw argumentError('program', shown(program), 'a function, or the path or URL of a module')
  }
  const code = findScript(pathOf(program), process.cwd())
  return {
    task: { kind: 'module', url: pathToFileURL(code.path).href, entry: entry ?? 'default' },
    code,
  }
}

/** The language of the file; JavaScript if its name does not tell. */
function languageOf(path: string): Script {
  try {
    return findScript(path, '/')
  } catch {
    return { path, language: 'javascript' }
  }
}

/** How Vite rewrites `import(...)` and the names that a module imports. */
const VITE_IMPORT = /\b__vite_ssr_dynamic_import__\((?:"(\/[^"\\]*)")?/g
const VITE_NAME = /\b__vi(te_ssr)?_import_(\d+|meta)__/

function sourceOf(program: (...args: never) => unknown): string {
  const source = Function.prototype.toString
    .call(program)
    .replaceAll(VITE_IMPORT, (_, file?: string) => {
      return `import(${file === undefined ? '' : JSON.stringify(urlOfVite(file))}`
    })
  if (VITE_NAME.test(source)) {
    throw argumentError(
      'program',
      'a function that uses what its module imports, or its import.meta',
      'one that imports inside of it, or the URL of a module that exports it: ' +
        "spawn(new URL('./work.ts', import.meta.url), { export: 'work' })",
    )
  }
  const isClass = /^class\b/.test(source)
  if (!isClass && parses(`(${source}\n)`)) return source
  throw argumentError(
    'program',
    `${isClass ? 'a class' : 'a function'} ${program.name}`.trim(),
    'a function or an arrow function, and no method, class, bound or native function',
  )
}

/** The URL of a path as Vite writes it: relative to Vite's root, or absolute. Vitest exposes the root. */
function urlOfVite(name: string): string {
  const anywhere = /^\/@fs(\/.*)/.exec(name)?.[1]
  if (anywhere !== undefined) return pathToFileURL(anywhere).href
  const { __vitest_worker__: worker } = globalThis as {
    readonly __vitest_worker__?: { readonly config?: { readonly root?: string } }
  }
  const below = join(worker?.config?.root ?? process.cwd(), name)
  return pathToFileURL(existsSync(below) ? below : name).href
}

function parses(source: string): boolean {
  try {
    new Syntax(source)
    return true
  } catch {
    return false
  }
}

/** Not `instanceof`, which fails for a URL of another realm (`node:vm`). */
function isUrl(value: unknown): value is URL {
  return typeof value === 'object' && value !== null && 'href' in value
}

function pathOf(address: string | URL): string {
  const text = isUrl(address) ? address.href : address
  if (!/^[a-z][a-z+.-]+:/i.test(text)) return resolve(text)
  if (text.startsWith('file:')) return fileURLToPath(text)
  throw argumentError('program', shown(text), 'a function, or the path or file: URL of a module')
}
