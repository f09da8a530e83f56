import { execFileSync, spawnSync } from 'node:child_process'
import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { readdirSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { jest } from '@jest/globals'
import { parse } from 'yaml'
import { flagTable, variablesOf } from '../internals/launcher/args.ts'
import { Cluster, endClusters, lossesOf, onHosts, root, token } from './support/cluster.ts'
import { needing } from '../needs.ts'

jest.setTimeout(180_000)

const hasCompose = spawnSync('docker-compose', ['--version']).status === 0
const { it: withCompose } = needing(hasCompose, 'docker-compose')

interface Service {
  readonly build?: string | { readonly context: string; readonly target: string }
  readonly image: string
  readonly pull_policy?: string
  readonly profiles?: string[]
  readonly command: string | string[]
  readonly scale?: string
  readonly environment?: Record<string, string | null>
  readonly volumes: string[]
  readonly network_mode?: string
  readonly deploy?: {
    readonly resources: { readonly reservations: { readonly devices: readonly object[] } }
  }
}

interface ComposeFile {
  readonly services: Record<string, Service>
  readonly volumes: Record<string, object>
}

const fileNames = ['docker-compose.yml', 'docker-compose.hosts.yml'] as const
const textOf = (name: string): string => readFileSync(`${root}${name}`, 'utf8')
const read = (name: (typeof fileNames)[number]): ComposeFile =>
  parse(textOf(name), { merge: true }) as ComposeFile
const { services } = read('docker-compose.yml')
const hosts = read('docker-compose.hosts.yml').services

/** The services that run tsrun, by what brings them up. */
const nodes = { cpu: [services['node']!], gpu: [services['gpu0']!, services['gpu1']!] }
const everyNode = [...nodes.cpu, ...nodes.gpu, ...Object.values(hosts)]

const known = new Set([...flagTable.flatMap(variablesOf), 'TSRUN_TOKEN', 'TSRUN_RUNS_DIR'])

/** What compose makes of `${NAME:-default}` and `${NAME:?message}`. */
function interpolate(text: string, env: Record<string, string>): string {
  return text.replaceAll(
    /\$\{(\w+):([-?])([^}]*)\}/g,
    (_, name: string, kind: string, rest: string) => env[name] ?? (kind === '-' ? rest : ''),
  )
}

/** The environment of a container; a name without a value takes that of `given`. */
function environmentOf(service: Service, given: Record<string, string>): NodeJS.ProcessEnv {
  const entries = Object.entries(service.environment!)
  const filled = entries.map(([name, value]) => [
    name,
    value === null ? given[name] : interpolate(value, given),
  ])
  return Object.fromEntries(filled) as NodeJS.ProcessEnv
}

/** Checks files against the schema of the Compose specification, which dclint brings. */
function lint(...files: readonly string[]): {
  readonly status: number | null
  readonly said: string
} {
  // A tag says nothing about an image that is built here.
  const args = [...files, '--quiet', '--disable-rule', 'service-image-require-explicit-tag']
  const bin = `${root}node_modules/.bin/dclint`
  const { status, stdout, stderr } = spawnSync(bin, args, { cwd: root, encoding: 'utf8' })
  return { status, said: (stdout + stderr).trim() }
}

describe('the Compose files', () => {
  it('conform to the specification', () => {
    expect(lint(...fileNames)).toEqual({ status: 0, said: '' })
  })

  it.each([
    ['an unknown key', /^( +)pull_policy: (.*)$/m, '$1pull_polici: $2'],
    ['a device without capabilities', /^ +capabilities: \[gpu\]\n/m, ''],
  ])('do not conform to the specification with %s', (_, pattern, replacement) => {
    const folder = mkdtempSync(join(tmpdir(), 'tsrun-compose-'))
    try {
      const broken = join(folder, 'docker-compose.yml')
      const text = textOf('docker-compose.yml')
      const changed = text.replace(pattern, replacement)
      expect(changed).not.toBe(text)
      writeFileSync(broken, changed)
      expect(lint(broken)).toMatchObject({
        status: 1,
        said: expect.stringContaining('invalid-schema'),
      })
    } finally {
      rmSync(folder, { recursive: true })
    }
  })

  it('give each node an init process, shared memory and volumes for logs and checkpoints', () => {
    for (const { environment, volumes, ...service } of everyNode) {
      expect(service).toMatchObject({ init: true, shm_size: '1gb', stop_grace_period: '30s' })
      expect(Object.keys(environment!).filter((name) => !known.has(name))).toEqual([])
      expect(volumes).toEqual(expect.arrayContaining(['logs:/tsrun/logs']))
      expect(volumes).toEqual(expect.arrayContaining(['checkpoints:/tsrun/checkpoints']))
    }
  })

  it.each(fileNames)('have no version key and build each image in one service: %s', (name) => {
    expect(read(name)).not.toHaveProperty('version')
    const all = Object.values(read(name).services)
    const policy = (service: Service, given = {}) => interpolate(service.pull_policy!, given)
    for (const image of ['tsrun', 'tsrun-gpu']) {
      const users = all.filter((service) => interpolate(service.image, {}) === image)
      const builders = users.filter(({ build }) => build !== undefined)
      expect(builders).toHaveLength(1)
      expect(policy(builders[0]!)).toBe('build')
      expect(builders[0]!.build).toEqual(image === 'tsrun' ? '.' : { context: '.', target: 'gpu' })
      for (const service of users) {
        if (service.build === undefined) expect(policy(service)).toBe('never')
        expect(policy(service, { TSRUN_PULL: 'missing' })).toBe('missing')
      }
    }
  })

  it('give nodes no right to change anything but their volumes and /tmp', () => {
    for (const node of everyNode) {
      expect(node).toMatchObject({
        ...{ read_only: true, tmpfs: '/tmp', cap_drop: ['ALL'] },
        security_opt: ['no-new-privileges:true'],
      })
    }
  })

  it('start only services without GPUs by default, with one replica per node', () => {
    const started = Object.entries(services).filter(([, { profiles }]) => profiles === undefined)
    expect(started.map(([name]) => name)).toEqual(['token', 'node'])
    const [{ scale, environment, deploy }] = nodes.cpu as [Service]
    expect(scale).toBe(environment!['TSRUN_NNODES'])
    expect(interpolate(scale!, {})).toBe('2')
    expect(deploy).toBeUndefined()
  })

  it('give each GPU node a different GPU', () => {
    const ids = nodes.gpu.map(({ deploy, profiles }) => {
      expect(profiles).toEqual(['gpu'])
      return deploy!.resources.reservations.devices
    })
    expect(ids).toEqual([
      [{ driver: 'nvidia', device_ids: ['0'], capabilities: ['gpu'] }],
      [{ driver: 'nvidia', device_ids: ['1'], capabilities: ['gpu'] }],
    ])
    for (const { environment } of nodes.gpu) {
      expect(environment).toMatchObject({ TSRUN_NNODES: '2', TSRUN_RDZV_ENDPOINT: 'gpu0:29500' })
    }
  })

  it('use the host network if there are several machines', () => {
    for (const { network_mode } of Object.values(hosts)) expect(network_mode).toBe('host')
  })

  withCompose('are accepted by docker-compose', () => {
    const show = (args: readonly string[], env: NodeJS.ProcessEnv): string =>
      execFileSync('docker-compose', [...args, 'config'], {
        cwd: root,
        env: { ...process.env, ...env },
        encoding: 'utf8',
      })
    const own = show(['--profile', 'gpu'], { TSRUN_NNODES: '3' })
    expect(own).toContain('scale: 3')
    expect(own).toContain("TSRUN_NNODES: '3'")
    expect(own).toContain('TSRUN_RDZV_ENDPOINT: gpu0:29500')
    const given = { TSRUN_TOKEN: token, TSRUN_RDZV_ENDPOINT: 'node0', TSRUN_NODE_RANK: '1' }
    const several = show(['-f', 'docker-compose.hosts.yml', '--profile', 'gpu'], given)
    expect(several).toContain(`TSRUN_TOKEN: ${token}`)
    expect(several).toContain("TSRUN_NODE_RANK: '1'")
    expect(several).toContain('TSRUN_IFACE: null')
  })

  withCompose.each([
    ['the token', { TSRUN_RDZV_ENDPOINT: 'node0' }, 'openssl rand -hex 32'],
    ['the endpoint', { TSRUN_TOKEN: token }, 'the name or address of the first machine'],
  ])('ask for %s on several machines', (_, env, message) => {
    const { status, stderr } = spawnSync(
      'docker-compose',
      ['-f', 'docker-compose.hosts.yml', 'config'],
      { cwd: root, env: { PATH: process.env['PATH'], ...env }, encoding: 'utf8' },
    )
    expect(status).not.toBe(0)
    expect(stderr).toContain(message)
  })
})

describe('the commands of the containers, on emulated hosts,', () => {
  const epoch = 'examples/pipeline.ts --epochs 1 --images 6000'
  const bin = `${root}node_modules/.bin:${process.env['PATH']!}`
  let folder: string

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'tsrun-compose-'))
    chmodSync(folder, 0o755)
    for (const name of ['token', 'logs', 'checkpoints']) execFileSync('mkdir', [join(folder, name)])
    // As the Dockerfile makes them.
    for (const name of ['logs', 'checkpoints']) {
      execFileSync('chown', ['1000:1000', join(folder, name)])
    }
  })

  afterEach(async () => {
    await endClusters()
    rmSync(folder, { recursive: true })
  })

  /** The paths of the containers in the folder of the test. */
  const placed = (text: string): string =>
    text
      .replaceAll('/run/tsrun', join(folder, 'token'))
      .replace('/tmp/tsrun-runs', join(folder, 'runs'))
      .replace(/^logs$/, join(folder, 'logs'))

  /** The command of a service on a host, as the user of the image. */
  const start = (
    cluster: Cluster,
    host: number,
    service: Service,
    given: Record<string, string>,
  ): ReturnType<Cluster['run']> => {
    const command = interpolate(service.command as string, given)
    const environment = Object.entries(environmentOf(service, given)).map(([name, value]) => [
      name,
      value && placed(value),
    ])
    const user = ['setpriv', '--reuid=1000', '--regid=1000', '--clear-groups']
    return cluster.run(host, [...user, 'sh', '-c', `exec ${command}`], {
      ...(Object.fromEntries(environment) as NodeJS.ProcessEnv),
      PATH: bin,
      HOME: folder,
    })
  }

  onHosts('train with a token that only their user can read, and write logs', async () => {
    const cluster = new Cluster(3)
    cluster.alias(0, 'job-node-1')
    const make = services['token']!.command as string[]
    const file = join(folder, 'token/token')
    const tokens = [0, 1].map(() => {
      execFileSync(make[0]!, make.slice(1).map(placed))
      return readFileSync(file, 'utf8').trim()
    })
    expect(tokens[0]).toMatch(/^[0-9a-f]{64}$/)
    expect(tokens[1]).not.toBe(tokens[0])
    const { mode, uid } = statSync(file)
    expect({ mode: mode & 0o777, uid }).toEqual({ mode: 0o600, uid: 1000 })

    const given = { COMPOSE_PROJECT_NAME: 'job', TSRUN_NNODES: '3', TSRUN_NPROC: '1' }
    const options = { ...given, TSRUN_COMMAND: epoch }
    // The first replica comes last.
    const runs = [2, 1, 0].map((host) => start(cluster, host, services['node']!, options))
    const ends = await Promise.all(runs.map(({ finished }) => finished))
    for (const { code, stderr } of ends) expect({ code, stderr }).toEqual({ code: 0, stderr })
    expect(ends[2]!.stderr).toMatch(/3 nodes: node 0 n0 \(10\.99\.0\.1\): rank 0; node 1 n/)
    expect(lossesOf(ends[2]!.stdout)).toHaveLength(1)
    const [run] = readdirSync(join(folder, 'logs'))
    const ranks = readdirSync(join(folder, 'logs', run!, 'attempt_0'))
    expect(ranks.filter((name) => /^\d+$/.test(name)).sort()).toEqual(['0', '1', '2'])
  })

  onHosts('train on several machines, with and without TSRUN_NODE_RANK', async () => {
    const cluster = new Cluster(2)
    const given = { TSRUN_TOKEN: token, TSRUN_RDZV_ENDPOINT: 'node0:29500', TSRUN_COMMAND: epoch }
    const train = async (numbers: readonly Record<string, string>[]): Promise<void> => {
      const runs = numbers.map((number, host) =>
        start(cluster, host, hosts['node']!, { ...given, TSRUN_NPROC: '1', ...number }),
      )
      const ends = await Promise.all(runs.map(({ finished }) => finished))
      for (const { code, stderr } of ends) expect({ code, stderr }).toEqual({ code: 0, stderr })
      expect(lossesOf(ends[0]!.stdout)).toHaveLength(1)
    }
    await train([{}, {}])
    await train([{ TSRUN_NODE_RANK: '0' }, { TSRUN_NODE_RANK: '1', TSRUN_IFACE: 'eth0' }])
  })
})

it('the service that makes the token uses the base image of the Dockerfile', () => {
  expect(textOf('Dockerfile')).toContain(`\nARG NODE=${services['token']!.image}\n`)
})
