import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { jest } from '@jest/globals'
import { parse } from 'yaml'
import { blocksOf } from '../docs/markdown.ts'
import { flagTable } from '../../packages/launcher/src/args/flags.ts'
import { variablesOf } from '../../packages/launcher/src/args/settings.ts'
import { Cluster, lossesOf, onHosts, root, token } from './support/cluster.ts'

jest.setTimeout(180_000)

const hasCompose = spawnSync('docker-compose', ['--version']).status === 0
if (!hasCompose) console.warn('skipped: no docker-compose')
const withCompose = hasCompose ? it : it.skip

interface Service {
  readonly build: string | { readonly context: string; readonly dockerfile: string }
  readonly image: string
  readonly profiles: string[]
  readonly command: string
  readonly hostname: string
  readonly environment: Record<string, string>
  readonly healthcheck?: { readonly test: string[] }
  readonly depends_on?: Record<string, { readonly condition: string }>
  readonly deploy?: object
  readonly init: boolean
  readonly shm_size: string
  readonly stop_grace_period: string
}

const file = readFileSync(`${root}docker-compose.yml`, 'utf8')
const { services } = parse(file, { merge: true }) as { services: Record<string, Service> }
const ofProfile = (profile: string): [string, Service][] =>
  Object.entries(services).filter(([, service]) => service.profiles.includes(profile))

/** What compose makes of `${NAME:-default}` and `${NAME:?message}`. */
function interpolate(text: string, env: Record<string, string>): string {
  return text.replaceAll(
    /\$\{(\w+):([-?])([^}]*)\}/g,
    (_, name: string, kind: string, rest: string) => env[name] ?? (kind === '-' ? rest : ''),
  )
}

const known = new Set([...flagTable.flatMap(variablesOf), 'TSRUN_TOKEN'])

describe('docker-compose.yml', () => {
  it.each(['cpu', 'gpu'])('has two nodes in the profile %s, and all that they need', (profile) => {
    const nodes = ofProfile(profile)
    expect(nodes.map(([, { environment }]) => environment['TSRUN_NODE_RANK'])).toEqual(['0', '1'])
    for (const [, service] of nodes) {
      expect(service).toMatchObject({ init: true, shm_size: '1gb', stop_grace_period: '30s' })
      expect(Object.keys(service.environment).filter((name) => !known.has(name))).toEqual([])
      expect(service.environment).toMatchObject({ TSRUN_NNODES: '2' })
      expect(service.environment['TSRUN_RDZV_ENDPOINT']).toBe(`${nodes[0]![1].hostname}:29500`)
      expect(service.deploy === undefined).toBe(profile === 'cpu')
    }
    const [[first, zero], [, one]] = nodes as [[string, Service], [string, Service]]
    expect(zero.healthcheck?.test[0]).toBe('CMD-SHELL')
    expect(one.depends_on).toEqual({ [first]: { condition: 'service_healthy' } })
  })

  withCompose.each(['cpu', 'gpu'])('is valid with the profile %s', (profile) => {
    const env = { ...process.env, TSRUN_TOKEN: token }
    const options = { cwd: root, env, encoding: 'utf8' } as const
    const shown = execFileSync('docker-compose', ['--profile', profile, 'config'], options)
    expect(shown).toContain('TSRUN_RDZV_ENDPOINT: node0:29500')
  })

  withCompose('asks for the token', () => {
    const env = { ...process.env, TSRUN_TOKEN: undefined }
    const options = { cwd: root, env, encoding: 'utf8' } as const
    const { status, stderr } = spawnSync('docker-compose', ['--profile', 'cpu', 'config'], options)
    expect(status).not.toBe(0)
    expect(stderr).toContain('make one with openssl rand -hex 32')
  })

  onHosts('trains with its commands and environment, on hosts of our own', async () => {
    const cluster = new Cluster(2)
    try {
      const given = {
        TSRUN_TOKEN: token,
        TSRUN_COMMAND: 'examples/pipeline.ts --epochs 1 --batch 2048',
      }
      const runs = ofProfile('cpu').map(([, { command, environment }], host) => {
        const env = Object.entries(environment).map(([name, value]) => [
          name,
          interpolate(value, given),
        ])
        const shell = ['bash', '-c', interpolate(command, given)]
        return cluster.run(host, shell, Object.fromEntries(env) as NodeJS.ProcessEnv)
      })
      const check = services['node0']!.healthcheck!.test[1]!
      await runs[0]!.says(/2 nodes: node 0 n0 \(10\.99\.0\.1\): ranks 0-1; node 1 n1/)
      expect((await cluster.run(0, ['sh', '-c', check]).finished).code).toBe(0)
      const ends = await Promise.all(runs.map(({ finished }) => finished))
      for (const { code, stderr } of ends) expect({ code, stderr }).toEqual({ code: 0, stderr })
      expect(lossesOf(ends[0]!.stdout)).toHaveLength(1)
      expect((await cluster.run(0, ['sh', '-c', check]).finished).code).toBe(1)
    } finally {
      await cluster.down()
    }
  })
})

/** The instructions of a Dockerfile, continued lines joined, without comments. */
function instructionsOf(name: string): string[] {
  const text = readFileSync(`${root}${name}`, 'utf8')
  const joined = text.replaceAll(/\\\n\s*/g, '')
  return joined.split('\n').filter((line) => line !== '' && !line.startsWith('#'))
}

/** What it copies from the repository. */
function copiesOf(name: string): string[] {
  return instructionsOf(name).filter((line) => /^COPY (?!--from)/.test(line))
}

describe.each(['Dockerfile', 'Dockerfile.gpu'])('%s', (name) => {
  it('copies what exists, every manifest before npm ci', () => {
    const copied = copiesOf(name).flatMap((line) => line.split(' ').slice(1, -1))
    for (const path of copied) expect(existsSync(`${root}${path}`)).toBe(true)
    const { workspaces } = JSON.parse(readFileSync(`${root}package-lock.json`, 'utf8')) as {
      workspaces?: unknown
    }
    expect(workspaces).toBeUndefined()
    const manifests = execFileSync('git', ['ls-files', 'packages/*/package.json'], { cwd: root })
    for (const path of manifests.toString().trim().split('\n')) expect(copied).toContain(path)
  })
})

describe('Dockerfile.gpu', () => {
  it('builds the repository as the Dockerfile does', () => {
    const shared = instructionsOf('Dockerfile').filter((line) =>
      /^(COPY|RUN|WORKDIR|CMD)/.test(line),
    )
    expect(instructionsOf('Dockerfile.gpu').filter((line) => shared.includes(line))).toEqual(shared)
  })

  it('is what the services with GPUs are built from, and no other', () => {
    for (const [, { build, image }] of ofProfile('gpu')) {
      expect({ build, image }).toEqual({
        build: { context: '.', dockerfile: 'Dockerfile.gpu' },
        image: 'tsrun-gpu',
      })
    }
    for (const [, { build, image }] of ofProfile('cpu')) {
      expect({ build, image }).toEqual({ build: '.', image: 'tsrun' })
    }
  })

  it('brings the CUDA and the TensorFlow that docs/gpu.md names', () => {
    const page = readFileSync(`${root}docs/gpu.md`, 'utf8')
    const given = (name: string): string =>
      instructionsOf('Dockerfile.gpu')
        .find((line) => line.startsWith(`ARG ${name}=`))!
        .split('=')[1]!
    const [major, minor] = given('CUDA').split('.').map(Number)
    expect(major).toBe(12)
    expect(minor).toBeGreaterThanOrEqual(5)
    expect(page).toContain(`CUDA ${given('CUDA')}`)
    expect(page).toContain(`TensorFlow ${given('TENSORFLOW')}`)
  })
})

it('docs/several-hosts.md shows manifests that are YAML and name variables of tsrun', () => {
  const page = readFileSync(`${root}docs/several-hosts.md`, 'utf8')
  const manifests = blocksOf('several-hosts.md', page).filter(({ language }) => language === 'yaml')
  expect(manifests.length).toBeGreaterThan(0)
  for (const { text } of manifests) {
    for (const document of text.split(/^---$/m)) expect(parse(document)).toHaveProperty('kind')
    for (const [name] of text.matchAll(/\bTSRUN_\w+/g)) expect(known).toContain(name)
  }
})
