import { createHash } from 'node:crypto'
import { lstatSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import type { Settings } from './settings.ts'

interface Esbuild {
  transform(source: string, options: object): Promise<{ readonly code: string }>
}

/**
 * Makes a function that strips the types of a module with the esbuild that tsx uses. Loads esbuild only for
 * a source that is not cached.
 */
export function openCompiler(tsx: string, settings: Settings) {
  const require = createRequire(createRequire(tsx).resolve('tsx'))
  const { version } = require('esbuild/package.json') as { readonly version: string }
  /** All inputs that affect the result, except path and source. */
  const identity = JSON.stringify({ version, ...settings })
  const cache = openCache()
  let loading: Promise<Esbuild> | undefined
  return async (path: string, source: string): Promise<string> => {
    const key = createHash('sha256').update(`${identity}\0${path}\0${source}`).digest('hex')
    const file = cache && join(cache, `${key}.mjs`)
    const known = file && read(file)
    if (known !== undefined) return known
    loading ??= import(pathToFileURL(require.resolve('esbuild')).href) as Promise<Esbuild>
    const esbuild = await loading
    const { code } = await esbuild.transform(source, {
      loader: 'ts',
      format: 'esm',
      target: `node${process.versions.node}`,
      sourcefile: path,
      sourcemap: 'inline',
      sourcesContent: false,
      tsconfigRaw: { compilerOptions: settings },
    })
    if (file !== undefined) write(file, code)
    return code
  }
}

/** A cache folder in the temporary folder, writable only by this user; undefined if there is none. */
function openCache(): string | undefined {
  const user = process.geteuid?.()
  if (user === undefined) return undefined
  const folder = join(tmpdir(), `tsrun-typescript-${user}`)
  try {
    mkdirSync(folder, { mode: 0o700 })
  } catch {
    // The folder may exist already.
  }
  try {
    const status = lstatSync(folder)
    const isOurs = status.isDirectory() && status.uid === user && (status.mode & 0o022) === 0
    return isOurs ? folder : undefined
  } catch {
    return undefined
  }
}

function read(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return undefined
  }
}

/** Renames the complete file, so that other processes never read a partial module. */
function write(file: string, code: string): void {
  const unfinished = `${file}.${process.pid}`
  try {
    writeFileSync(unfinished, code)
    renameSync(unfinished, file)
  } catch {
    // Without a cache entry, the module is compiled again next time.
  }
}
