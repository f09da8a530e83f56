import { spawnSync } from 'node:child_process'
import { accessSync, constants, existsSync, statSync } from 'node:fs'
import { createRequire } from 'node:module'
import { basename, delimiter, extname, resolve } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { tsrError } from '@tsrun/core'
import { packageFolder } from '../../package.ts'
import { isTypescriptLoader, preloadedBy } from '../../protocol/loaders.ts'

export interface Script {
  /** The absolute path of the script. */
  readonly path: string
  readonly language: 'javascript' | 'typescript' | 'tsx' | 'program'
}

const javascript = ['.js', '.mjs', '.cjs']
const typescript = ['.ts', '.mts', '.cts']
const jsx = ['.tsx', '.jsx']

/** @param command - the tsrun command with the most similar name, suggested if the file is missing */
export function findScript(script: string, cwd: string, command?: string): Script {
  const path = resolve(cwd, script)
  const status = statSync(path, { throwIfNoEntry: false })
  if (status === undefined) {
    const nearest = command === undefined ? '' : ` (the nearest command is ${command})`
    throw refuse(script, `there is no file ${path}${alternative(path, '') || nearest}`)
  }
  if (status.isDirectory()) throw refuse(script, `it is a directory${alternative(path, '/index')}`)
  if (!status.isFile()) throw refuse(script, 'it is not a regular file')
  const extension = extname(path)
  if (javascript.includes(extension)) return { path, language: 'javascript' }
  if (typescript.includes(extension)) return { path, language: 'typescript' }
  if (jsx.includes(extension)) return { path, language: 'tsx' }
  const kinds = [...javascript, ...typescript, '.tsx'].join(', ')
  throw refuse(script, `it is neither JavaScript nor TypeScript (expected ${kinds})`)
}

/** Resolves a module name like an `import` in a file of `cwd`. */
export function findModule(name: string, cwd: string): Script {
  const program = `(${printResolved.toString()})()`
  const args = ['--input-type=module', '--eval', program, '--', name]
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { cwd, encoding: 'utf8' })
  if (status !== 0 || !stdout.startsWith('file:')) {
    const [, reason = 'Node finds no such module'] = /^\w*Error.*?: (.*)$/m.exec(stderr) ?? []
    throw refuse(name, reason)
  }
  return findScript(fileURLToPath(stdout), cwd)
}

/**
 * Runs in a child process, which applies all rules of Node's loader and resolves from its working
 * directory. The source of this function is the child's program.
 */
const printResolved = (): void => {
  process.stdout.write(import.meta.resolve(process.argv[1]!))
}

/** Finds a program like a shell: searches the PATH for a name without a slash. */
export function findProgram(name: string, cwd: string, env: NodeJS.ProcessEnv): Script {
  const isPath = basename(name) !== name
  const folders = isPath ? [cwd] : (env['PATH'] ?? env['Path'] ?? '').split(delimiter)
  // Only Windows sets PATHEXT. Its other extensions belong to scripts that need a shell.
  const endings = env['PATHEXT'] === undefined ? [''] : ['', '.exe', '.com']
  const paths = folders
    .filter((folder) => folder !== '')
    .flatMap((folder) => endings.map((ending) => resolve(cwd, folder, name + ending)))
  const path = paths.find((each) => isExecutable(each))
  if (path !== undefined) return { path, language: 'program' }
  const where = isPath ? 'there is no such program' : 'no folder of the PATH has it'
  throw refuse(name, `${where}, or it is not executable`)
}

function isExecutable(path: string): boolean {
  if (statSync(path, { throwIfNoEntry: false })?.isFile() !== true) return false
  try {
    accessSync(path, constants.X_OK)
    return true
  } catch {
    return false
  }
}

function alternative(path: string, suffix: string): string {
  const found = [...typescript, ...javascript].find((extension) =>
    existsSync(path + suffix + extension),
  )
  return found === undefined ? '' : `, but there is ${path}${suffix}${found}`
}

function refuse(script: string, problem: string): Error {
  return tsrError('ERR_TSR_SCRIPT', { script, problem })
}

type NodeAbilities = ReturnType<typeof nodeAbilities>

/** The abilities of the Node that runs this process; ranks run on the same Node. */
export function nodeAbilities(env: NodeJS.ProcessEnv, execArgv: readonly string[] = []) {
  return {
    /** Node's own TypeScript support, such as `strip`; false or undefined without it. */
    typescript: (process.features as { typescript?: unknown }).typescript,
    version: process.version,
    /** NODE_OPTIONS and `--node-args` of the ranks. */
    nodeOptions: [env['NODE_OPTIONS'] ?? '', ...execArgv].join(' '),
  }
}

/**
 * The arguments that make Node run the script's language. Empty if Node strips types itself or the user
 * preloads a known TypeScript loader. Otherwise `--import` of our own loader, which uses tsx.
 * If tsx is not installed, assumes that a module preloaded by the user is an unknown loader.
 *
 * @param places - the files or URLs from which tsx is resolved, in this order
 */
export function loaderArguments(
  script: Script,
  node: NodeAbilities,
  places: readonly string[],
): string[] {
  if (script.language === 'javascript' || script.language === 'program') return []
  if (script.language === 'typescript' && Boolean(node.typescript)) return []
  // Other preloaded loaders, such as Yarn's Plug'n'Play loader, work together with tsx.
  if (preloadedBy(node.nodeOptions).some(isTypescriptLoader)) return []
  const loader = resolveFrom(places, 'tsx')
  if (loader !== undefined) return ['--import', ownLoader(pathToFileURL(loader).href, script)]
  if (preloadedBy(node.nodeOptions).length > 0) return []
  const language = script.language === 'tsx' ? 'JSX' : 'TypeScript'
  const reason = `Node ${node.version} does not run ${language} by itself`
  throw tsrError('ERR_TSR_TYPESCRIPT_LOADER', { script: script.path, reason })
}

/** The URL of `rank/typescript/loader.ts`, with its arguments in the query. */
function ownLoader(tsx: string, { path }: Script): string {
  const url = new URL('dist/typescript-loader.js', packageFolder)
  url.searchParams.set('tsx', tsx)
  url.searchParams.set('script', path)
  return url.href
}

/** Resolves a package from the first place where Node finds the package. */
export function resolveFrom(places: readonly string[], specifier: string): string | undefined {
  for (const place of places) {
    try {
      return createRequire(place).resolve(specifier)
    } catch {
      // Try the next place.
    }
  }
  return undefined
}
