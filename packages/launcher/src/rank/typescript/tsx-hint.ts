import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { isTypescriptLoader, preloadedBy } from '../../protocol/loaders.ts'
import { findUp, readOptions } from './settings.ts'

/** A hint for what TypeScript and tsx accept, but not Node, which only strips types. */
export function tsxHint(error: unknown): string {
  const { code, message, stack } = Object(error) as Record<string, unknown>
  const text = typeof message === 'string' ? message : ''
  if (runsLoader()) return ''
  const reason =
    missingSource(text) ??
    alias(text) ??
    missingType(text) ??
    unknownExtension(text) ??
    reasons[DECORATED.test(String(stack)) ? 'decorator' : String(code)]
  return reason === undefined ? '' : `\n${reason}`
}

/** Whether a loader runs TypeScript in this process: by the user's choice, or by that of the launcher. */
function runsLoader(): boolean {
  const nodeOptions = [process.env['NODE_OPTIONS'] ?? '', ...process.execArgv].join(' ')
  const isOwn = nodeOptions.includes('/typescript-loader.js?')
  return isOwn || preloadedBy(nodeOptions).some(isTypescriptLoader)
}

const USE_TSX = 'NODE_OPTIONS="--import tsx" (npm install -D tsx)'

/** The stack of a syntax error begins with the place and the line. An @ in a text or comment is none. */
const DECORATED = /^.+\.[cm]?ts:\d+\n(?:[^'"`/\n]*[ \t({,;])?@\w/

const reasons: Readonly<Record<string, string>> = {
  decorator: `tsx runs decorators: ${USE_TSX}.`,
  ERR_UNSUPPORTED_NODE_MODULES_TYPE_STRIPPING: `tsx runs packages in TypeScript: ${USE_TSX}.`,
}

/** An import of `./lib.js`, `./lib` or a folder, where there is only lib.ts or index.ts. */
function missingSource(message: string): string | undefined {
  const [, path, extension = ''] =
    /^(?:Cannot find module|Directory import) '(.+?)(\.[cm]?jsx?)?' (?:imp|is not sup)/.exec(
      message,
    ) ?? []
  if (path === undefined) return undefined
  const source = candidates(extension)
    .map((ending) => path + ending)
    .find((file) => existsSync(file))
  return source && `There is ${source}, which only tsx looks for: ${USE_TSX}. Or name it in full.`
}

function candidates(extension: string): string[] {
  if (extension === '') return ['.ts', '.tsx', '/index.ts', '/index.tsx']
  return [extension.replace('js', 'ts'), extension.replace('js', 'ts').replace(/x?$/, 'x')]
}

/** An import by `paths` of tsconfig.json. Node says that there is no such package. */
function alias(message: string): string | undefined {
  const [, name, file] = /^Cannot find package '(.+)' imported from (.+)/.exec(message) ?? []
  const tsconfig = file === undefined ? undefined : findUp('tsconfig.json', dirname(file))
  if (name === undefined || tsconfig === undefined) return undefined
  try {
    const { paths } = readOptions(tsconfig, 0)
    const starts = Object.keys(Object(paths) as object).map((key) => key.replace(/\*.*/, ''))
    const isAlias = starts.some((start) => {
      const [one, other] = [join(start, '/'), join(name, '/')]
      return one.startsWith(other) || other.startsWith(one)
    })
    return isAlias ? `Only tsx heeds paths of ${tsconfig}: ${USE_TSX}.` : undefined
  } catch {
    return undefined
  }
}

/** An import of a type that does not say `type`. */
function missingType(message: string): string | undefined {
  const [, name] =
    /^The requested module '.+\.[cm]?tsx?' does not provide an export named '(.+)'/.exec(message) ??
    []
  if (name === 'default') return `If that is a type: import type NAME from, or ${USE_TSX}.`
  return name && `If ${name} is a type: import type { ${name} }, or ${USE_TSX}.`
}

function unknownExtension(message: string): string | undefined {
  const isKnown = /^Unknown file extension "\.(?:[cm]?ts|[jt]sx)"/.test(message)
  return isKnown ? `tsx runs TypeScript and JSX: ${USE_TSX}.` : undefined
}
