import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { isTypescriptLoader, preloadedBy } from '../../protocol/loaders.ts'
import { findUp, readOptions } from './settings.ts'

/** A hint for code that TypeScript and tsx accept, but Node rejects, because Node only strips types. */
export function tsxHint(error: unknown): string {
  const { code, message, stack } = Object(error) as Record<string, unknown>
  if (runsLoader()) return ''
  const text = typeof message === 'string' ? message : ''
  for (const [pattern, explain] of hints) {
    const [, ...parts] = pattern.exec(text) ?? []
    const hint = parts.length === 0 ? undefined : explain(...parts)
    if (hint !== undefined) return `\n${hint}`
  }
  const what = features[DECORATED.test(String(stack)) ? 'decorator' : String(code)]
  return what === undefined ? '' : `\ntsx runs ${what}: ${USE_TSX}.`
}

/** Whether the user or the launcher has preloaded a TypeScript loader in this process. */
function runsLoader(): boolean {
  const nodeOptions = [process.env['NODE_OPTIONS'] ?? '', ...process.execArgv].join(' ')
  const isOwn = nodeOptions.includes('/typescript-loader.js?')
  return isOwn || preloadedBy(nodeOptions).some(isTypescriptLoader)
}

const USE_TSX = 'NODE_OPTIONS="--import tsx" (npm install -D tsx)'

/**
 * Matches a decorator in the stack of a syntax error, which begins with the location and the source line.
 * Ignores an @ in a text or comment.
 */
const DECORATED = /^.+\.[cm]?ts:\d+\n(?:[^'"`/\n]*[ \t({,;])?@\w/

/** Features that only tsx supports, by the code of Node's error. */
const features: Readonly<Record<string, string>> = {
  decorator: 'decorators',
  ERR_UNSUPPORTED_NODE_MODULES_TYPE_STRIPPING: 'packages in TypeScript',
  ERR_UNSUPPORTED_TYPESCRIPT_SYNTAX: 'enums and namespaces',
}

/** Messages of Node, and hints that depend on their parts. */
const hints: readonly (readonly [RegExp, (...parts: string[]) => string | undefined])[] = [
  [/^(?:Cannot find module|Directory import) '(.+?)(\.[cm]?jsx?)?' (?:imp|is not sup)/, findSource],
  [/^Cannot find package '(.+)' imported from (.+)/, findAlias],
  [
    /^Unknown file extension "\.([cm]?ts|[jt]sx)"/,
    () => `tsx runs TypeScript and JSX: ${USE_TSX}.`,
  ],
  [
    /^The requested module '.+\.[cm]?tsx?' does not provide an export named '(.+)'/,
    (name) => {
      const imported = name === 'default' ? 'NAME from' : `{ ${name} }`
      return `If that is a type: import type ${imported}, or ${USE_TSX}.`
    },
  ],
]

/** Explains a failed import of `./lib.js`, `./lib` or a folder if only lib.ts or index.ts exists. */
function findSource(path: string, extension = ''): string | undefined {
  const typed = extension.replace('js', 'ts')
  const endings =
    extension === ''
      ? ['.ts', '.tsx', '/index.ts', '/index.tsx']
      : [typed, typed.replace(/x?$/, 'x')]
  const source = endings.map((ending) => path + ending).find((file) => existsSync(file))
  return source && `There is ${source}, which only tsx looks for: ${USE_TSX}. Or name it in full.`
}

/** Explains a failed import of an alias in `paths` of tsconfig.json, which Node takes for a package. */
function findAlias(name: string, file: string): string | undefined {
  const tsconfig = findUp('tsconfig.json', dirname(file))
  if (tsconfig === undefined) return undefined
  try {
    const { paths } = readOptions(tsconfig, 0)
    const isAlias = Object.keys(Object(paths) as object).some((key) => {
      const [one, other] = [join(key.replace(/\*.*/, ''), '/'), join(name, '/')]
      return one.startsWith(other) || other.startsWith(one)
    })
    return isAlias ? `Only tsx heeds paths of ${tsconfig}: ${USE_TSX}.` : undefined
  } catch {
    return undefined
  }
}
