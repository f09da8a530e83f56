import {
  accessSync,
  constants,
  lstatSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { join, resolve } from 'node:path'
import { anything, makeFolders, parseJson, readFileText, record, replaceFile } from '@tsrun/core'
import { quoted, usageError } from '../args/readers.ts'
import { packageFolder, version } from '../package.ts'
import { declareCommand } from './context.ts'

/** `tsrun init [folder]` */
export const command = declareCommand({
  usage:
    '$0 init [folder]\n\nBegins a project in TypeScript: train.ts, which trains a network on two ranks, ' +
    'train.test.ts, package.json, tsconfig.json and .gitignore. The folder is made if it is not there; ' +
    'the default is this one. A project that exists gets what it lacks; no file is overwritten.',
  argument: { description: 'where to write' },
  flags: {},
  run: (_, { cwd, console }, [folder = '.']) => {
    console.print('stdout', initProject(folder, cwd))
  },
})

/** Files that must not exist before `tsrun init`, which never overwrites files. */
const scripts = ['train.ts', 'train.test.ts']

/** Files that are written unless they exist. npm omits `.gitignore`, so its template has no dot. */
const settings = { 'tsconfig.json': 'tsconfig.json', '.gitignore': 'gitignore' }

/**
 * Writes the files of a project.
 *
 * @returns a report, and the commands to run next
 * @throws ERR_TSR_USAGE before anything is written
 */
function initProject(folder: string, cwd: string): string {
  const home = resolve(cwd, folder)
  checkFolder(folder, home)
  const present = scripts.filter((name) => isThere(join(home, name)))
  if (present.length > 0) {
    const are = present.length === 1 ? 'is' : 'are'
    throw usageError(`${present.join(' and ')} ${are} there already: choose another folder`)
  }
  const before = read(join(home, 'package.json'))
  const manifest = completeManifest(before)
  const lines: string[] = []
  const made: string[] = []
  const write = (name: string, text: string): void => {
    // Do not follow links, and do not overwrite files created meanwhile.
    writeFileSync(join(home, name), text, { flag: 'wx' })
    made.push(name)
    lines.push(`  wrote     ${name}`)
  }
  try {
    makeFolders(home)
    if (before === undefined) write('package.json', manifest)
    for (const name of scripts) write(name, template(name))
    for (const [name, source] of Object.entries(settings)) {
      if (isThere(join(home, name))) lines.push(`  kept      ${name}`)
      else write(name, template(source))
    }
    if (manifest === before) lines.push('  kept      package.json')
    else if (before !== undefined) {
      replaceFile(join(home, 'package.json'), manifest, 0o666)
      lines.push('  completed package.json')
    }
  } catch (error) {
    for (const name of made) rmSync(join(home, name), { force: true })
    throw usageError(`the project cannot be written: ${(error as Error).message}`)
  }
  const enter = home === cwd ? [] : [`  cd ${quoted(folder)}`]
  // Suggest `npm run` only if the project's script equals the script of the template.
  const { scripts: own } = JSON.parse(manifest) as { scripts: Record<string, string> }
  const runs = Object.entries(templateManifest().scripts)
    .map(([name, line]) => (own[name] === line ? `npm run ${name}` : `npx ${line}`))
    .map((line) => line.replace('npx node', 'node').replace('npm run test', 'npm test'))
  const next = [...enter, ...['npm install', ...runs].map((line) => `  ${line}`)]
  return [`tsrun init: ${home}`, ...lines, 'Next:', ...next, ''].join('\n')
}

/** @throws ERR_TSR_USAGE */
function checkFolder(folder: string, home: string): void {
  const status = attempt(() => statSync(home, { throwIfNoEntry: false }))
  if (status === undefined) return
  if (!status.isDirectory()) throw usageError(`${folder} is a file: name a folder for the project`)
  try {
    accessSync(home, constants.W_OK)
  } catch (error) {
    const { message } = error as Error
    throw usageError(`${folder} cannot be written to (${message}): choose another folder`)
  }
}

type Manifest = Record<string, unknown>

/** The placeholder of `npm init` for a test script. */
const NO_TEST = 'echo "Error: no test specified" && exit 1'

/**
 * The package.json of a project: the template, or the existing file with missing entries added. @throws
 * ERR_TSR_USAGE
 */
function completeManifest(text: string | undefined): string {
  const wanted = templateManifest()
  if (text === undefined) return `${JSON.stringify(wanted, null, 2)}\n`
  const manifest = parseManifest(text)
  if (manifest['type'] === 'commonjs') {
    throw usageError(
      'package.json has "type": "commonjs", and tsrun\'s packages are ES modules: ' +
        'change it to "module", or choose another folder',
    )
  }
  const present = new Set(
    ['dependencies', 'devDependencies'].flatMap((kind) => Object.keys(manifest[kind] ?? {})),
  )
  const lacking = (kind: DependencyKind): [string, string][] =>
    Object.entries(wanted[kind]).filter(([name]) => !present.has(name))
  const scripts = Object(manifest['scripts']) as Manifest
  const complete: Manifest = {
    ...manifest,
    type: 'module',
    scripts: {
      ...wanted.scripts,
      ...scripts,
      ...(scripts['test'] === NO_TEST ? { test: wanted.scripts['test'] } : {}),
    },
  }
  for (const kind of ['dependencies', 'devDependencies'] as const) {
    const added = lacking(kind)
    if (added.length === 0) continue
    complete[kind] = { ...(manifest[kind] as Manifest | undefined), ...Object.fromEntries(added) }
  }
  if (JSON.stringify(complete) === JSON.stringify(manifest)) return text
  const [, indent = '  '] = /\n([ \t]+)"/.exec(text) ?? []
  return `${JSON.stringify(complete, null, indent)}\n`
}

type DependencyKind = 'dependencies' | 'devDependencies'

/** The package.json of a new project, with tsrun's packages at the version of this launcher. */
function templateManifest(): Record<DependencyKind | 'scripts', Record<string, string>> {
  const text = template('package.json').replaceAll('"tsrun"', JSON.stringify(version))
  return JSON.parse(text) as Record<DependencyKind | 'scripts', Record<string, string>>
}

/** Whether the name exists, even as a dangling link. */
function isThere(path: string): boolean {
  return attempt(() => lstatSync(path, { throwIfNoEntry: false })) !== undefined
}

/** @throws ERR_TSR_USAGE */
function parseManifest(text: string): Manifest {
  const value = parseJson(text.replace(/^\ufeff/, ''), record(anything()))
  if (value !== undefined) return value
  throw usageError('package.json is not a JSON object: mend it, or choose another folder')
}

function template(name: string): string {
  return readFileSync(new URL(`templates/${name}`, packageFolder), 'utf8')
}

function read(path: string): string | undefined {
  try {
    return readFileText(path)
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes((error as NodeJS.ErrnoException).code ?? ''))
      return undefined
    throw usageError(`${path} cannot be read: ${(error as Error).message}`)
  }
}

function attempt<T>(act: () => T): T | undefined {
  try {
    return act()
  } catch {
    return undefined
  }
}
