import { join, resolve } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { Script as Syntax } from 'node:vm'
import { tsrError } from '@tsrun/core'
import { findScript, type Script } from '../job/script.ts'
import { check, type CompleteOptions } from './options.ts'

/** What the ranks are told to run. */
export type Task = FunctionTask | ModuleTask

export interface FunctionTask {
  readonly kind: 'function'
  /** An expression. */
  readonly source: string
  /** Absolute path: what the function imports is found from there, and stacks name it. */
  readonly path: string
}

export interface ModuleTask {
  readonly kind: 'module'
  readonly url: string
  readonly entry: string
}

/** A task, and the file by whose language Node is set up. */
export interface PlannedTask {
  readonly task: Task
  readonly code: Script
}

type Program = ((rank: number, ...args: never) => unknown) | string | URL

/**
 * Says how ranks get at the program.
 *
 * @throws ERR_TSR_ARGUMENT for a function without a source of its own; ERR_TSR_SCRIPT for a file that
 * is none
 */
export function planTask(program: Program, options: CompleteOptions): PlannedTask {
  const { base, export: entry } = options
  if (typeof program === 'function') {
    check('export', entry, entry === undefined, 'none with a function, which is called itself')
    const path = pathOf(base ?? process.argv[1] ?? join(process.cwd(), 'eval.js'))
    const known = base === undefined ? undefined : findScript(path, '/')
    const code = known ?? languageOf(path)
    const name = program.name === '' ? 'function' : program.name
    const source = sourceOf(program)
    return { task: { kind: 'function', source, path: `${path}#${name}` }, code }
  }
  check('program', program, isAddress(program), 'a function, or the path or URL of a module')
  const code = findScript(pathOf(program), process.cwd())
  return {
    task: { kind: 'module', url: pathToFileURL(code.path).href, entry: entry ?? 'default' },
    code,
  }
}

/** The script of this process may have no name that says what it is. */
function languageOf(path: string): Script {
  try {
    return findScript(path, '/')
  } catch {
    return { path, language: 'javascript' }
  }
}

function sourceOf(program: (...args: never) => unknown): string {
  const source = Function.prototype.toString.call(program)
  const isClass = /^class\b/.test(source)
  if (!isClass && parses(`(${source}\n)`)) return source
  const value = `${isClass ? 'a class' : 'a function'} ${program.name}`.trim()
  const expected = 'a function or an arrow function: no method, class, bound or native function'
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'program', value, expected })
}

function parses(source: string): boolean {
  try {
    new Syntax(source)
    return true
  } catch {
    return false
  }
}

function isAddress(program: unknown): program is string | URL {
  return typeof program === 'string' || isUrl(program)
}

/** Also one of another realm. */
function isUrl(value: unknown): value is URL {
  return typeof value === 'object' && value !== null && 'href' in value
}

function pathOf(address: string | URL): string {
  const text = isUrl(address) ? address.href : address
  if (!/^[a-z][a-z+.-]+:/i.test(text)) return resolve(text)
  check(
    'program',
    text,
    text.startsWith('file:'),
    'a function, or the path or file: URL of a module',
  )
  return fileURLToPath(text)
}
