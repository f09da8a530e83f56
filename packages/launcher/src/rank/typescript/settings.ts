import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'

/** The compiler options that type stripping supports without tsx. */
export interface Settings {
  /** Keeps unused imports. */
  readonly verbatimModuleSyntax: boolean
}

type Options = Readonly<Record<string, unknown>>

/** Options that require tsx, because they change the meaning of a module at run time. */
const others = [
  'baseUrl',
  'experimentalDecorators',
  'importsNotUsedAsValues',
  'paths',
  'preserveValueImports',
  'useDefineForClassFields',
]

/** Targets with native class fields. Older targets turn fields into assignments. */
const TARGETS = /^es(2022|2023|2024|2025|next)$/i

/** Reads a tsconfig.json, if any; undefined if it requires tsx. */
export function readSettings(
  file: string | undefined,
  env: NodeJS.ProcessEnv,
): Settings | undefined {
  if (env['TSX_TSCONFIG_PATH'] !== undefined) return undefined
  try {
    const options = file === undefined ? {} : readOptions(file, 0)
    if (others.some((name) => options[name] !== undefined)) return undefined
    const { target = 'esnext', verbatimModuleSyntax } = options
    if (!TARGETS.test(String(target))) return undefined
    return { verbatimModuleSyntax: verbatimModuleSyntax === true }
  } catch {
    return undefined
  }
}

/** Finds the nearest file of this name in a folder or its parents. */
export function findUp(name: string, folder: string): string | undefined {
  const file = join(folder, name)
  if (existsSync(file)) return file
  return dirname(folder) === folder ? undefined : findUp(name, dirname(folder))
}

const LONGEST_CHAIN = 10

/** Reads the compiler options of a tsconfig.json and of the files that it extends. Throws on errors. */
export function readOptions(file: string, depth: number): Options {
  if (depth > LONGEST_CHAIN) throw new Error('the files extend each other')
  const { extends: bases = [], compilerOptions = {} } = parse(readFileSync(file, 'utf8'))
  const inherited = [bases].flat().map((base) => readOptions(pathOf(base, file), depth + 1))
  return Object.assign({}, ...inherited, compilerOptions) as Options
}

function pathOf(base: string, file: string): string {
  const { resolve } = createRequire(file)
  for (const path of [base, `${base}.json`, `${base}/tsconfig.json`]) {
    try {
      return resolve(path)
    } catch {
      // Try the next spelling.
    }
  }
  throw new Error(`there is no ${base}`)
}

interface Config {
  readonly extends?: string | readonly string[]
  readonly compilerOptions?: Options
}

/** Parses JSON with comments and trailing commas. */
function parse(text: string): Config {
  const bare = text.replaceAll(
    /("(?:\\.|[^"\\])*")|\/\/[^\n]*|\/\*[^]*?\*\//g,
    (_, literal?: string) => literal ?? '',
  )
  return JSON.parse(
    bare.replaceAll(/("(?:\\.|[^"\\])*")|,(?=\s*[}\]])/g, (_, literal?: string) => literal ?? ''),
  ) as Config
}
