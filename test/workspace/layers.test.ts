import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import ts from 'typescript'

const root = fileURLToPath(new URL('../../', import.meta.url))

/** A package may import those above it. */
const layers = ['core', 'native', 'telemetry', 'store', 'distributed', 'training', 'launcher']

/** What else a package must not touch, so that it stays what it is for. */
const forbidden: Record<string, RegExp> = {
  core: /^(node:(net|http|dgram|child_process)|@tensorflow\/.*)$/,
  distributed: /^@tensorflow\//,
  training: /^node:(net|http|dgram)$/,
  launcher: /^(@tensorflow\/.*|@tsrun\/(distributed|training))$/,
}

interface Manifest {
  dependencies?: Record<string, string>
  optionalDependencies?: Record<string, string>
  peerDependencies?: Record<string, string>
}

function sourcesOf(folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(ts|mjs|js)$/.test(name))
    .filter((name) => !/(^|\/)(node_modules|dist)\//.test(name))
    .map((name) => join(folder, name))
}

/** Specifiers of the static, dynamic and type-only imports and the re-exports of a file. */
function importsOf(file: string): string[] {
  const { importedFiles } = ts.preProcessFile(readFileSync(join(root, file), 'utf8'), true, true)
  return importedFiles.map(({ fileName }) => fileName)
}

/** `@tsrun/core` of `@tsrun/core/errors`. */
function packageOf(specifier: string): string {
  return specifier
    .split('/')
    .slice(0, specifier.startsWith('@') ? 2 : 1)
    .join('/')
}

it('knows every package', () => {
  expect(readdirSync(join(root, 'packages')).sort()).toEqual([...layers].sort())
})

describe.each(layers)('%s', (name) => {
  const above = layers.slice(0, layers.indexOf(name)).map((layer) => `@tsrun/${layer}`)
  const manifest = JSON.parse(
    readFileSync(join(root, 'packages', name, 'package.json'), 'utf8'),
  ) as Manifest
  const { dependencies, optionalDependencies, peerDependencies } = manifest
  const declared = Object.keys({ ...dependencies, ...optionalDependencies, ...peerDependencies })
  const imports = sourcesOf(`packages/${name}/src`).flatMap((file) =>
    importsOf(file).map((specifier) => ({ file, specifier })),
  )

  it('imports and declares only packages above it', () => {
    const wrong = imports.filter(
      ({ specifier }) => specifier.startsWith('@tsrun/') && !above.includes(packageOf(specifier)),
    )
    expect(wrong).toEqual([])
    expect(above).toEqual(
      expect.arrayContaining(declared.filter((dependency) => dependency.startsWith('@tsrun/'))),
    )
  })

  it('declares what it imports and reaches into no other package', () => {
    const wrong = imports.filter(({ file, specifier }) => {
      if (specifier.startsWith('node:')) return false
      if (!specifier.startsWith('.')) return !declared.includes(packageOf(specifier))
      return !join(file, '..', specifier).startsWith(join('packages', name))
    })
    expect(wrong).toEqual([])
  })

  it('keeps to its subject', () => {
    const pattern = forbidden[name]
    expect(imports.filter(({ specifier }) => pattern?.test(specifier) === true)).toEqual([])
  })
})

it('has no source file above 400 lines', () => {
  const long = ['packages', 'examples', 'scripts', 'test']
    .flatMap(sourcesOf)
    .map((file) => ({ file, lines: readFileSync(join(root, file), 'utf8').split('\n').length - 1 }))
    .filter(({ lines }) => lines > 400)
  expect(long).toEqual([])
})
