import { lstatSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import {
  anything,
  isTsrError,
  makeFolders,
  parseJson,
  readFileText,
  record,
  replaceFile,
} from '@tsrun/core'
import { quoted, usageError } from '../args/readers.ts'
import { packageFolder, version } from '../package.ts'
import { declareCommand } from './context.ts'

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

/** The files of a project and their templates. npm omits `.gitignore`, so its template has no dot. */
const templates = {
  'train.ts': 'train.ts',
  'train.test.ts': 'train.test.ts',
  'tsconfig.json': 'tsconfig.json',
  '.gitignore': 'gitignore',
}

/** @returns a report, and the commands to run next */
function initProject(folder: string, cwd: string): string {
  const home = resolve(cwd, folder)
  const manifest = join(home, 'package.json')
  const lines: string[] = []
  try {
    const present = scripts.find((name) => isThere(join(home, name)))
    if (present !== undefined) {
      throw usageError(`${present} is there already: choose another folder`)
    }
    const isNew = !isThere(manifest)
    const completed = isNew ? templateManifest() : completeManifest(readFileText(manifest))
    makeFolders(home)
    replaceFile(manifest, completed, 0o666)
    lines.push(`  ${isNew ? 'wrote    ' : 'completed'} package.json`)
    for (const [name, source] of Object.entries(templates)) {
      const path = join(home, name)
      const isKept = isThere(path)
      // Do not follow links, and do not overwrite files created meanwhile.
      if (!isKept) writeFileSync(path, template(source), { flag: 'wx' })
      lines.push(`  ${isKept ? 'kept     ' : 'wrote    '} ${name}`)
    }
    lines.push('Next:', ...(home === cwd ? [] : [`  cd ${quoted(folder)}`]), '  npm install')
    // An existing project may have other scripts with these names.
    lines.push(
      ...(isNew
        ? ['  npm run train', '  npm test']
        : ['  npx tsrun --nproc 2 train.ts', '  node --import tsx --test train.test.ts']),
    )
  } catch (error) {
    if (isTsrError(error)) throw error
    throw usageError(`the project cannot be written: ${(error as Error).message}`, error)
  }
  return [`tsrun init: ${home}`, ...lines, ''].join('\n')
}

/** Whether the name exists, even as a dangling link. */
function isThere(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined
}

type Manifest = Readonly<Record<string, unknown>>

/** Adds the missing entries to a package.json. @throws ERR_TSR_USAGE */
function completeManifest(text: string): string {
  const manifest = parseJson(text.replace(/^\ufeff/, ''), record(anything()))
  if (manifest === undefined) {
    throw usageError('package.json is not a JSON object: mend it, or choose another folder')
  }
  if (manifest['type'] === 'commonjs') {
    throw usageError(
      'package.json has "type": "commonjs", and tsrun\'s packages are ES modules: ' +
        'change it to "module", or choose another folder',
    )
  }
  const wanted = JSON.parse(templateManifest()) as Record<string, Manifest>
  const kinds = ['dependencies', 'devDependencies']
  const present = kinds.flatMap((kind) => Object.keys(manifest[kind] ?? {}))
  const withWanted = (kind: string): [string, Manifest] => {
    const lacking = Object.entries(wanted[kind]!).filter(([name]) => !present.includes(name))
    return [kind, { ...(manifest[kind] as Manifest | undefined), ...Object.fromEntries(lacking) }]
  }
  const complete = {
    ...manifest,
    type: 'module',
    scripts: { ...wanted['scripts'], ...(manifest['scripts'] as Manifest | undefined) },
    ...Object.fromEntries(kinds.map(withWanted)),
  }
  const [, indent = '  '] = /\n([ \t]+)"/.exec(text) ?? []
  return `${JSON.stringify(complete, null, indent)}\n`
}

/** The package.json of a new project, with tsrun's packages at the version of this launcher. */
function templateManifest(): string {
  return template('package.json').replaceAll('"tsrun"', JSON.stringify(version))
}

function template(name: string): string {
  return readFileSync(new URL(`templates/${name}`, packageFolder), 'utf8')
}
