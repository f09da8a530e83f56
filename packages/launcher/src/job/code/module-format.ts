import { readFileSync, realpathSync } from 'node:fs'
import module, { createRequire } from 'node:module'
import { basename, dirname, extname } from 'node:path'
import { compileFunction } from 'node:vm'
import { anything, object, parseJson, readFileText, tsrError } from '@tsrun/core'
import { findUp } from '../../rank/typescript/settings.ts'
import type { Script } from './script.ts'

/** The facts that determine how Node reads the script. */
interface FormatContext {
  /** Whether the user preloads a module loader, which may accept any syntax. */
  readonly hasLoader: boolean
  /** The entry file of tsx, if tsx runs the script. */
  readonly tsx: string | undefined
}

/**
 * Rejects a script with ES module syntax that Node would read as CommonJS, because every rank would
 * print a syntax error. Does not read the script if its extension or package.json makes it an ES module.
 */
export function refuseModuleSyntax({ path, language }: Script, context: FormatContext): void {
  const file = realpathSync(path)
  if (context.hasLoader || language === 'program') return
  const reason = reasonForCommonJs(file, context.tsx !== undefined)
  if (reason === undefined) return
  const source = readFileSync(file, 'utf8').replace(/^#!.*/, '')
  const found =
    context.tsx === undefined ? findByNode(source, language) : findByEsbuild(source, context.tsx)
  if (found === undefined) return
  throw tsrError('ERR_TSR_COMMONJS', { script: basename(path), ...found, reason })
}

/** Why Node reads a file as CommonJS; undefined if Node reads an ES module or detects the format. */
function reasonForCommonJs(file: string, runsTsx: boolean): string | undefined {
  const extension = extname(file)
  if (['.mjs', '.mts'].includes(extension)) return undefined
  if (['.cjs', '.cts'].includes(extension)) return `${extension} stands for CommonJS`
  const manifest = findUp('package.json', dirname(file))
  const type = manifest && typeOf(manifest)
  if (type === 'module') return undefined
  if (type === 'commonjs') return `${manifest!} says "type": "commonjs"`
  // Without a type in package.json, Node detects the format from the syntax; tsx does not.
  if (!runsTsx) return undefined
  return manifest === undefined
    ? 'no package.json says "type": "module"'
    : `${manifest} does not say "type": "module"`
}

function typeOf(manifest: string): unknown {
  try {
    return parseJson(readFileText(manifest), object({ type: anything() }))?.type
  } catch {
    return undefined
  }
}

/** The first place with ES module syntax. */
interface Found {
  readonly line: number
  readonly syntax: string
}

/** V8's error messages for ES module syntax in CommonJS. */
const complaints: readonly (readonly [RegExp, string])[] = [
  [/^Cannot use import statement outside a module/, '`import`'],
  [/^Unexpected token 'export'/, '`export`'],
  [/^Cannot use 'import\.meta' outside a module/, '`import.meta`'],
  [/^await is only valid in async functions|^Unexpected reserved word/, 'a top-level `await`'],
]

/** Compiles the source as Node does for CommonJS, without running it. */
function findByNode(source: string, language: Script['language']): Found | undefined {
  const code = language === 'javascript' ? source : stripTypes(source)
  if (code === undefined) return undefined
  const parameters = ['exports', 'require', 'module', '__filename', '__dirname']
  try {
    compileFunction(code, parameters, { filename: 'script' })
    return undefined
  } catch (error) {
    const { message, stack = '' } = error as Error
    const syntax = complaints.find(([pattern]) => pattern.test(message))?.[1]
    const line = Number(/^script:(\d+)/.exec(stack)?.[1] ?? 1)
    // For any other error, Node itself prints the line.
    return syntax === undefined ? undefined : { line, syntax }
  }
}

interface TypeStripper {
  stripTypeScriptTypes?(code: string): string
}

/** Strips types like Node, preserving lines and columns; undefined if Node cannot strip them. */
function stripTypes(source: string): string | undefined {
  // eslint-disable-next-line @typescript-eslint/unbound-method -- only saved and restored, never called
  const { emitWarning } = process
  try {
    // Suppress the warning that the stripper is experimental. Node itself uses it to run TypeScript.
    process.emitWarning = () => undefined
    // eslint-disable-next-line n/no-unsupported-features/node-builtins -- checked for undefined
    return (module as TypeStripper).stripTypeScriptTypes?.(source)
  } catch {
    return undefined
  } finally {
    process.emitWarning = emitWarning
  }
}

interface Esbuild {
  transformSync(source: string, options: object): unknown
}

interface EsbuildError {
  readonly errors?: readonly {
    readonly text: string
    readonly location?: { readonly line: number } | null
  }[]
}

/** tsx turns imports into `require`, but cannot convert a top-level await. */
function findByEsbuild(source: string, tsx: string): Found | undefined {
  const fromTsx = createRequire(createRequire(tsx).resolve('tsx'))
  const esbuild = fromTsx('esbuild') as Esbuild
  try {
    esbuild.transformSync(source, { loader: 'tsx', format: 'cjs', logLevel: 'silent' })
    return undefined
  } catch (error) {
    const found = (error as EsbuildError).errors?.find(({ text }) =>
      text.startsWith('Top-level await'),
    )
    return found && { line: found.location?.line ?? 1, syntax: 'a top-level `await`' }
  }
}
