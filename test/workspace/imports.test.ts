import { spawnSync } from 'node:child_process'
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import rules, { packages } from '../../.dependency-cruiser.mjs'

const root = fileURLToPath(new URL('../../', import.meta.url))

interface Manifest {
  dependencies?: Record<string, string>
  optionalDependencies?: Record<string, string>
  peerDependencies?: Record<string, string>
  peerDependenciesMeta?: Record<string, { optional: boolean }>
}

describe('the packages', () => {
  it('are the same as in the dependency rules', () => {
    expect(readdirSync(join(root, 'packages')).sort()).toEqual(Object.keys(packages).sort())
  })

  it('import only packages that precede them in the dependency order', () => {
    const names = Object.keys(packages)
    for (const [name, allowed] of Object.entries(packages)) {
      expect(names.slice(0, names.indexOf(name))).toEqual(expect.arrayContaining(allowed))
    }
  })

  it.each(Object.entries(packages))(
    '%s declares the packages that it may import, and as optional peers those above that it loads by name',
    (name, allowed) => {
      const file = join(root, 'packages', name, 'package.json')
      const manifest = JSON.parse(readFileSync(file, 'utf8')) as Manifest
      const { dependencies, optionalDependencies, peerDependencies } = manifest
      const declared = Object.keys({
        ...dependencies,
        ...optionalDependencies,
        ...peerDependencies,
      })
      const names = Object.keys(packages)
      const isAbove = (other: string) =>
        names.indexOf(other.slice('@tsrun/'.length)) > names.indexOf(name)
      const ours = declared.filter((dependency) => dependency.startsWith('@tsrun/'))
      expect(ours.filter((other) => !isAbove(other)).sort()).toEqual(
        allowed.map((dependency) => `@tsrun/${dependency}`).sort(),
      )
      for (const other of ours.filter(isAbove)) {
        expect(manifest.peerDependenciesMeta?.[other]).toEqual({ optional: true })
      }
    },
  )
})

/** A tree that keeps the rules: every package imports what it may, and types are imported in a circle. */
const right: Record<string, string> = {
  'packages/distributed/src/algorithms/channel.ts': `import type { Ring } from './ring.ts'`,
  'packages/distributed/src/algorithms/ring.ts': `import type { Channel } from './channel.ts'`,
  'packages/distributed/src/engine/engine.ts': `import '../algorithms/ring.ts'`,
  'packages/distributed/src/record/index.ts': `import '@tsrun/core'`,
  'packages/distributed/src/transport.ts': `import './algorithms/ring.ts'`,
  'packages/launcher/src/host.ts': `import '@tsrun/core'`,
  'packages/training/src/backend/backend.ts': 'export interface Backend {}',
  'packages/training/src/backend/wasm/heap.ts': `import type { Backend } from '../backend.ts'`,
  'packages/training/src/planning.ts': `export * from './planning/table.ts'`,
  'packages/training/src/planning/table.ts': `import '@tsrun/core'`,
  'packages/training/src/nn/linear.ts': `import type { Backend } from '../backend/backend.ts'`,
  'examples/example.ts': `import '@tsrun/training'\nimport './lib/flags.ts'`,
  'examples/lib/flags.ts': `import 'node:util'`,
}

/** For each rule, a file with an import that the rule refuses, and what the check says about it. */
const wrong: Record<string, { files: Record<string, string>; findings: string[] }> = {
  'core-imports': byName('core', 'store'),
  'native-imports': byName('native', 'store'),
  'observe-imports': byName('observe', 'store'),
  'store-imports': byName('store', 'native'),
  'distributed-imports': byName('distributed', 'training'),
  'mpi-imports': byName('mpi', 'training'),
  'training-imports': byName('training', 'store'),
  'data-imports': byName('data', 'layers'),
  'tensorflow-imports': byName('tensorflow', 'store'),
  'layers-imports': byName('layers', 'store'),
  'launcher-imports': byName('launcher', 'layers'),
  'doctor-imports': byName('doctor', 'layers'),
  'create-imports': byName('create', 'core'),
  'models-imports': byName('models', 'layers'),
  'packages-by-name': one(
    'packages/store/src/path.ts',
    '../../core/src/index.ts',
    'packages/core/src/index.ts',
  ),
  'examples-by-name': one(
    'examples/path.ts',
    '../packages/core/src/index.ts',
    'packages/core/src/index.ts',
  ),
  declared: one('packages/core/src/undeclared.ts', 'left-pad', 'node_modules/left-pad/index.js'),
  resolvable: one('packages/core/src/lost.ts', './nowhere.ts', './nowhere.ts'),
  'core-keeps-to-its-subject': one('packages/core/src/socket.ts', 'node:net', 'net'),
  'distributed-keeps-to-its-subject': tensorflow('distributed'),
  'training-keeps-to-its-subject': one('packages/training/src/socket.ts', 'node:dgram', 'dgram'),
  'launcher-keeps-to-its-subject': tensorflow('launcher'),
  'doctor-keeps-to-its-subject': tensorflow('doctor'),
  'launcher-plans': one(
    'packages/launcher/src/train.ts',
    '@tsrun/training',
    'packages/training/src/index.ts',
  ),
  'only-records': one(
    'packages/observe/src/rank.ts',
    '@tsrun/distributed',
    'packages/distributed/src/index.ts',
  ),
  'mpi-is-a-plug-in': one(
    'packages/mpi/src/group.ts',
    '@tsrun/distributed',
    'packages/distributed/src/index.ts',
  ),
  'doctor-is-a-plug-in': one(
    'packages/doctor/src/job.ts',
    '@tsrun/launcher',
    'packages/launcher/src/index.ts',
  ),
  'observe-is-optional': one(
    'packages/launcher/src/viewer.ts',
    '@tsrun/observe',
    'packages/observe/src/index.ts',
  ),
  'records-are-plain': one(
    'packages/distributed/src/record/ring.ts',
    '../algorithms/ring.ts',
    'packages/distributed/src/algorithms/ring.ts',
  ),
  'plans-are-pure': one(
    'packages/training/src/planning/layouts.ts',
    '../nn/linear.ts',
    'packages/training/src/nn/linear.ts',
  ),
  'models-are-plain': one(
    'packages/training/src/nn/embedding.ts',
    '../backend/wasm/heap.ts',
    'packages/training/src/backend/wasm/heap.ts',
  ),
  'algorithms-are-pure': one(
    'packages/distributed/src/algorithms/tree.ts',
    '../transports/tcp.ts',
    'packages/distributed/src/transports/tcp.ts',
    { 'packages/distributed/src/transports/tcp.ts': '' },
  ),
  'file-cycle': {
    files: {
      'packages/store/src/client.ts': `import './server.ts'`,
      'packages/store/src/server.ts': `export * from './client.ts'`,
    },
    findings: [
      'packages/store/src/client.ts imports packages/store/src/server.ts',
      'packages/store/src/server.ts imports packages/store/src/client.ts',
    ],
  },
  // One in the tree that is right, and three here: one more than may be.
  'type-cycle': {
    files: Object.fromEntries(
      ['a', 'b', 'c'].flatMap((name) => [
        [`packages/store/src/${name}1.ts`, `import type { X } from './${name}2.ts'`],
        [`packages/store/src/${name}2.ts`, `import type { Y } from './${name}1.ts'`],
      ]),
    ),
    findings: [
      ...['a', 'b', 'c'].flatMap((name) => [
        `packages/store/src/${name}1.ts imports packages/store/src/${name}2.ts`,
        `packages/store/src/${name}2.ts imports packages/store/src/${name}1.ts`,
      ]),
      'packages/distributed/src/algorithms/channel.ts imports packages/distributed/src/algorithms/ring.ts',
      'packages/distributed/src/algorithms/ring.ts imports packages/distributed/src/algorithms/channel.ts',
    ],
  },
  'folder-cycle': {
    files: {
      'packages/launcher/src/logs/line.ts': `import type { Plan } from '../plan/plan.ts'`,
      'packages/launcher/src/plan/plan.ts': `import type { Tag } from '../logs/tag.ts'`,
      'packages/launcher/src/logs/tag.ts': '',
    },
    findings: [
      // Between packages, from the wrong imports above.
      'core/ imports store/: packages/core/src/upward.ts imports packages/store/src/index.ts',
      'store/ imports core/: packages/store/src/path.ts imports packages/core/src/index.ts',
      'distributed/ imports training/: packages/distributed/src/upward.ts imports packages/training/src/index.ts',
      'training/ imports distributed/: packages/training/src/index.ts imports packages/distributed/src/index.ts',
      // Between folders of one package, by types alone.
      'logs/ imports plan/: packages/launcher/src/logs/line.ts imports packages/launcher/src/plan/plan.ts',
      'plan/ imports logs/: packages/launcher/src/plan/plan.ts imports packages/launcher/src/logs/tag.ts',
    ],
  },
}

describe('the dependency rules', () => {
  const sources = readdirSync(join(root, 'packages'), { recursive: true, encoding: 'utf8' })
    .filter((name) => /^[^/]+\/(src\/.*\.ts|bin\/.*\.js)$/.test(name))
    .map((name) => `packages/${name}`)
  const paths = rules.forbidden
    .flatMap(({ from, to }) => [from.path, to.path, to.pathNot].flat())
    .filter((path) => path?.startsWith('^packages/') === true && !path.includes('$1'))
    .flatMap((path) => alternativesOf(path!))
    // What is built is not there before the first build.
    .filter((path) => !path.includes('/dist/') && !/\\\.(js|d\\\.ts)\$$/.test(path))

  it.each([...new Set(paths)])('the path %s matches at least one source file', (path) => {
    expect(sources.some((source) => new RegExp(path).test(source))).toBe(true)
  })
})

/** A regular expression for each way through its groups. */
function alternativesOf(path: string): string[] {
  const group = /\(([^()]*)\)/.exec(path)
  if (group === null) return [path]
  return group[1]!.split('|').flatMap((each) => alternativesOf(path.replace(group[0], () => each)))
}

describe('the check of imports', () => {
  let folder: string
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'tsrun-imports-'))
    writePackages(folder)
    writeFiles(folder, right)
  })
  afterEach(() => {
    rmSync(folder, { recursive: true })
  })

  it('accepts a tree that keeps the rules', () => {
    const { status, stdout, stderr } = check(folder)
    expect(stderr).toBe('')
    expect(stdout).toMatch(
      /^\d+ files, \d+ imports: none is forbidden, and no cycles at run time\.\n$/,
    )
    expect(status).toBe(0)
  })

  it('refuses a wrong import for each rule, and reports its location', () => {
    for (const { files } of Object.values(wrong)) writeFiles(folder, files)
    const { status, stderr } = check(folder)
    const expected = Object.entries(wrong).map(([rule, { findings }]) => [rule, findings.sort()])
    expect(findingsOf(stderr)).toEqual(Object.fromEntries(expected))
    expect(status).toBe(1)
  })

  it('has a test of a wrong import for every rule', () => {
    const names = rules.forbidden.map(({ name }) => name)
    const cycles = ['file-cycle', 'type-cycle', 'folder-cycle']
    expect(Object.keys(wrong).sort()).toEqual([...names, ...cycles].sort())
  })
})

it('no source file has more than 400 lines', () => {
  const long = ['packages', 'examples', 'scripts', 'test']
    .flatMap(sourcesOf)
    .map((file) => ({ file, lines: readFileSync(join(root, file), 'utf8').split('\n').length - 1 }))
    .filter(({ lines }) => lines > 400)
  expect(long).toEqual([])
})

function sourcesOf(folder: string): string[] {
  return readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(ts|mjs|js)$/.test(name) && !/(^|\/)(node_modules|dist)\//.test(name))
    .map((name) => join(folder, name))
}

/** One file with one wrong import, which leads to `to`. */
function one(
  from: string,
  specifier: string,
  to: string,
  others: Record<string, string> = {},
): { files: Record<string, string>; findings: string[] } {
  return {
    files: { ...others, [from]: `import '${specifier}'` },
    findings: [`${from} imports ${to}`],
  }
}

function byName(from: string, to: string): ReturnType<typeof one> {
  return one(`packages/${from}/src/upward.ts`, `@tsrun/${to}`, `packages/${to}/src/index.ts`)
}

function tensorflow(name: string): ReturnType<typeof one> {
  const stub = 'node_modules/@tensorflow/tfjs/index.js'
  return one(`packages/${name}/src/tensors.ts`, '@tensorflow/tfjs', stub)
}

/** What a package imports of another. */
function entryOf(name: string, other: string): string {
  if (name === 'launcher' && other === 'training') return '@tsrun/training/planning'
  if (['launcher', 'observe'].includes(name) && other === 'distributed') {
    return '@tsrun/distributed/record'
  }
  if (name === 'mpi' && other === 'distributed') return '@tsrun/distributed/transport'
  if (name === 'doctor' && other === 'launcher') return '@tsrun/launcher/host'
  return `@tsrun/${other}`
}

function importOf(name: string, other: string): string {
  const typesOf: Readonly<Record<string, string>> = { launcher: 'observe', doctor: 'training' }
  const types = typesOf[name] === other ? 'type {} from ' : ''
  return `import ${types}'${entryOf(name, other)}'`
}

/** Packages of the same names that import each other as they may, and two stubs in node_modules. */
function writePackages(folder: string): void {
  for (const [name, allowed] of Object.entries(packages)) {
    const dependencies = [...allowed.map((other) => `@tsrun/${other}`), '@tensorflow/tfjs']
    writeFiles(join(folder, 'packages', name), {
      'package.json': JSON.stringify({
        name: `@tsrun/${name}`,
        exports: {
          '.': { '@tsrun/source': './src/index.ts', default: './dist/index.js' },
          './planning': { '@tsrun/source': './src/planning.ts', default: './dist/planning.js' },
          './record': { '@tsrun/source': './src/record/index.ts', default: './dist/record.js' },
          './host': { '@tsrun/source': './src/host.ts', default: './dist/host.js' },
          './transport': { '@tsrun/source': './src/transport.ts', default: './dist/transport.js' },
        },
        dependencies: Object.fromEntries(dependencies.map((dependency) => [dependency, '*'])),
      }),
      'src/index.ts': allowed.map((other) => importOf(name, other)).join('\n'),
    })
    mkdirSync(join(folder, 'node_modules/@tsrun'), { recursive: true })
    symlinkSync(join(folder, 'packages', name), join(folder, 'node_modules/@tsrun', name))
  }
  writeFiles(folder, {
    'package.json': JSON.stringify({ workspaces: ['packages/*'] }),
    'node_modules/@tensorflow/tfjs/package.json': '{ "name": "@tensorflow/tfjs" }',
    'node_modules/@tensorflow/tfjs/index.js': '',
    'node_modules/left-pad/package.json': '{ "name": "left-pad" }',
    'node_modules/left-pad/index.js': '',
  })
}

function writeFiles(folder: string, files: Record<string, string>): void {
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true })
    writeFileSync(join(folder, name), `${text}\n`)
  }
}

function check(folder: string): { status: number | null; stdout: string; stderr: string } {
  const script = join(root, 'scripts/architecture/check.mjs')
  return spawnSync(process.execPath, [script, folder], { encoding: 'utf8' })
}

/** The lines below each heading `name: ...`, sorted. */
function findingsOf(output: string): Record<string, string[]> {
  const findings: Record<string, string[]> = {}
  for (const block of output.trimEnd().split('\n\n')) {
    const [heading, ...lines] = block.split('\n')
    const name = heading!.split(':')[0]!
    findings[name] = [...(findings[name] ?? []), ...lines.map((line) => line.trim())].sort()
  }
  return findings
}
