import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import {
  argumentOf,
  copyOf,
  ignoring,
  neededFor,
  stagesOf,
  type Stage,
} from '../../scripts/dockerfile.mjs'

const root = fileURLToPath(new URL('../..', import.meta.url))
const textOf = (path: string): string => readFileSync(root + path, 'utf8')
const tracked = execFileSync('git', ['ls-files'], { cwd: root, encoding: 'utf8' })
  .trim()
  .split('\n')

const stages = stagesOf(textOf('Dockerfile'))
const isIgnored = ignoring(textOf('.dockerignore'))

function textsOf(stage: Stage, name: string): string[] {
  return stage.instructions.filter((each) => each.name === name).map(({ text }) => text)
}

/** What the build stage copies from the repository. */
const copied = stages
  .flatMap((stage) => textsOf(stage, 'COPY').map(copyOf))
  .filter(({ from }) => from === undefined)
  .flatMap(({ sources }) => sources)

describe('the stages of a Dockerfile', () => {
  const text = [
    'ARG BASE=node:22',
    'FROM ${BASE} AS build',
    'RUN one \\',
    '  two',
    '# a comment',
    'FROM other AS unused',
    'FROM ${BASE}',
    'COPY --from=build /a /b /c/',
  ].join('\n')

  it('have the values of arguments in their bases, and whole instructions', () => {
    const all = stagesOf(text)
    expect(all.map(({ name, base }) => [name, base])).toEqual([
      ['build', 'node:22'],
      ['unused', 'other'],
      ['2', 'node:22'],
    ])
    expect(all[0]!.instructions).toEqual([{ name: 'RUN', text: 'one two' }])
  })

  it('are left out if the target does not need them', () => {
    const names = (target?: string): string[] =>
      neededFor(stagesOf(text), target).map(({ name }) => name)
    expect(names()).toEqual(['build', '2'])
    expect(names('unused')).toEqual(['unused'])
    expect(() => names('none')).toThrow('the Dockerfile has no stage none')
  })

  it('copy from a stage or from the context', () => {
    expect(copyOf('--from=build /a /b /c/')).toEqual({
      ...{ from: 'build', sources: ['/a', '/b'], target: '/c/' },
    })
    expect(copyOf('. .')).toEqual({ from: undefined, sources: ['.'], target: '.' })
  })
})

it('a .dockerignore leaves out what its last matching pattern names, with all below', () => {
  const ignored = ignoring('*\n!src\n!a/b.txt\n**/*.key\nsrc/old?\n# a comment\n')
  const cases = {
    'README.md': true,
    'src/main.ts': false,
    'src/deep/secret.key': true,
    'src/old1/main.ts': true,
    'a/b.txt': false,
    'a/c.txt': true,
  }
  expect(Object.fromEntries(Object.keys(cases).map((path) => [path, ignored(path)]))).toEqual(cases)
})

describe('the Dockerfile', () => {
  it('copies only existing paths that .dockerignore lets in, and the manifest of every package', () => {
    for (const path of copied.filter((each) => each !== '.')) {
      expect(existsSync(root + path)).toBe(true)
      expect({ path, ignored: isIgnored(path) }).toEqual({ path, ignored: false })
    }
    const manifests = tracked.filter((path) => /^packages\/[^/]+\/package\.json$/.test(path))
    expect(copied).toEqual(expect.arrayContaining(manifests))
  })

  it('lets in what is built, and leaves out tests, docs, secrets and what others have built', () => {
    const needed = tracked.filter((path) => /^(packages\/[^/]+\/src|examples)\/.*\.ts$/.test(path))
    expect(needed.length).toBeGreaterThan(100)
    expect(needed.filter(isIgnored)).toEqual([])
    const others = [
      ...tracked.filter((path) => /^(test|docs|\.\w+)\//.test(path)),
      ...['.env', 'examples/.env.local', 'packages/core/.npmrc', 'server.key', 'scripts/tls.pem'],
      ...['.git/config', 'node_modules/a/index.js', 'packages/core/dist/index.js', 'logs/a.log'],
    ]
    expect(others.filter((path) => !isIgnored(path))).toEqual([])
  })

  it('copies only from stages above', () => {
    for (const [index, stage] of stages.entries()) {
      const above = stages.slice(0, index).map(({ name }) => name)
      for (const { from } of textsOf(stage, 'COPY').map(copyOf)) {
        if (from !== undefined) expect(above).toContain(from)
      }
    }
  })

  it('builds the image without GPUs by default, without the stages of the other', () => {
    expect(neededFor(stages).map(({ name }) => name)).toEqual(['build', 'production', 'cpu'])
  })
})

describe.each(['cpu', 'gpu'])('the image %s', (target) => {
  const stage = stages.find(({ name }) => name === target)!
  const position = (name: string): number =>
    stage.instructions.findIndex((each) => each.name === name)

  it('has the packages without what only builds and tests them', () => {
    const sources = textsOf(stage, 'COPY').map(copyOf)
    expect(sources).toContainEqual({ from: 'production', sources: ['/tsrun'], target: '/tsrun' })
    const others = sources.filter(({ from }) => from !== 'production')
    for (const { sources: paths } of others) {
      for (const path of paths) expect(path).toMatch(/^\/(usr\/local|opt|tsrun\/scripts)\//)
    }
    const production = stages.find(({ name }) => name === 'production')!
    expect(textsOf(production, 'RUN').join('\n')).toContain('npm prune --omit=dev')
  })

  it('runs as user 1000, who can write to the folders of the volumes', () => {
    expect(textsOf(stage, 'USER')).toEqual(['1000'])
    const made = stage.instructions.findIndex(
      ({ text }) => text === 'install --directory --owner 1000 --group 1000 logs checkpoints',
    )
    expect(made).toBeGreaterThan(position('WORKDIR'))
    expect(position('USER')).toBeGreaterThan(made)
  })

  it('has the labels of OCI, with the version, the commit and the source of the build', () => {
    const labels = Object.assign({}, ...textsOf(stage, 'LABEL').map(argumentOf)) as object
    expect(labels).toEqual({
      'org.opencontainers.image.title': expect.stringContaining('tsrun'),
      'org.opencontainers.image.description': expect.any(String),
      'org.opencontainers.image.licenses': 'Apache-2.0',
      'org.opencontainers.image.source': '${SOURCE}',
      'org.opencontainers.image.version': '${VERSION}',
      'org.opencontainers.image.revision': '${REVISION}',
    })
    expect(textsOf(stage, 'ARG')).toEqual([
      ...['VERSION=0.0.0', 'REVISION=unknown', 'SOURCE=unknown'],
    ])
  })

  it('asks deploy/health.mjs whether it is healthy', () => {
    const [check] = textsOf(stage, 'HEALTHCHECK')
    expect(check).toMatch(/ CMD \["node", "deploy\/health\.mjs"\]$/)
    expect(copied).toContain('.')
    expect(isIgnored('deploy/health.mjs')).toBe(false)
  })
})

it('docs/gpu.md names the versions of CUDA and TensorFlow of the image', () => {
  const page = textOf('docs/gpu.md')
  const { base, instructions } = stages.find(({ name }) => name === 'tensorflow')!
  const [, major, minor] = /^nvidia\/cuda:((\d+)\.(\d+)\.\d+)-cudnn-runtime-/.exec(base)!.slice(1)
  expect(major).toBe('12')
  expect(Number(minor)).toBeGreaterThanOrEqual(5)
  expect(page).toContain(`CUDA ${/:([\d.]+)-/.exec(base)![1]!}`)
  const argument = instructions.find(({ name }) => name === 'ARG')!
  expect(page).toContain(`TensorFlow ${argumentOf(argument.text)['TENSORFLOW']!}`)
})

describe('the health check', () => {
  const check = async (given: Record<string, string>): Promise<number | null> => {
    const env = { PATH: process.env['PATH'], ...given }
    const program = spawn(process.execPath, ['deploy/health.mjs'], {
      cwd: root,
      env,
      stdio: 'ignore',
    })
    const [code] = (await once(program, 'exit')) as [number | null]
    return code
  }

  it('passes if there is nothing to ask', async () => {
    expect(await check({})).toBe(0)
  })

  it('passes while the launcher answers at the address of TSRUN_METRICS, and fails after it', async () => {
    const server = createServer(({ url }, response) => {
      response.writeHead(url === '/metrics' ? 200 : 404).end()
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { port } = server.address() as AddressInfo
    const given = [`${port}`, `127.0.0.1:${port}`, `0.0.0.0:${port}`]
    const codes = () => Promise.all(given.map((TSRUN_METRICS) => check({ TSRUN_METRICS })))
    expect(await codes()).toEqual([0, 0, 0])
    server.close()
    server.closeAllConnections()
    await once(server, 'close')
    expect(await codes()).toEqual([1, 1, 1])
  })
})
