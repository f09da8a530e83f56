import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readRankEnvironment } from '@tsrun/core'
import { toProtection } from '../../internals/launcher/args.ts'
import {
  makeRunIdentity,
  describePlan,
  planAttempt,
  type Job,
} from '../../internals/launcher/job.ts'
import { onPlatform } from '../support/platform.ts'

const node = { id: '', host: 'h', address: '10.0.0.1', role: 'default' }
const master = { host: '127.0.0.1', port: 29500 }

function jobOf(virtualLocalRank = false): Job {
  return {
    program: { arguments: ['--name', "it's"], profiles: [] },
    placement: { role: 'default', virtualLocalRank, binding: undefined },
    protection: toProtection({ tls: false }),
    output: {},
    command: [process.execPath, '--enable-source-maps', '/train.mjs'],
    script: '/train.mjs',
    identity: { token: 'secret' },
    env: {},
    devices: { cores: 2, gpus: [], libraryFolders: [] },
    colour: { stdout: true },
  } as unknown as Job
}

const nodes = [{ ...node, nodeRank: 0, nproc: 3 }]
const plan = planAttempt(jobOf(), { plan: { runId: 'run', master, nodes }, nodeRank: 0 }, 2)

it('the library reads the environment that the launcher plans for a rank', () => {
  expect(plan.map(({ environment }) => readRankEnvironment(environment))).toEqual(
    [0, 1, 2].map((rank) => ({
      ...{ rank, worldSize: 3, localRank: rank, localWorldSize: 3, nodeRank: 0, nnodes: 1 },
      ...{
        masterAddr: '127.0.0.1',
        masterPort: 29500,
        runId: 'run',
        token: 'secret',
        restartCount: 2,
      },
    })),
  )
  expect(plan[1]).toMatchObject({
    environment: { FORCE_COLOR: expect.stringMatching(/^[123]$/) },
    command: [
      process.execPath,
      '--disable-warning=MODULE_TYPELESS_PACKAGE_JSON',
      '--enable-source-maps',
      '/train.mjs',
      '--name',
      "it's",
    ],
  })
})

it('sets COLUMNS of a rank to the width without the prefix', () => {
  const place = { plan: { runId: 'run', master, nodes }, nodeRank: 0 }
  const columns = (env: object, output: object = {}): (string | undefined)[] => {
    const job = jobOf()
    const told = { ...job, env, output: { format: 'pretty', ...output } } as Job
    return planAttempt(told, place, 0).map(({ environment }) => environment['COLUMNS'])
  }
  const width = process.stdout.columns || 80
  const without = (prefix: string): string => String(width - prefix.length)
  expect(columns({})).toEqual(Array(3).fill(without('[rank 0] ')))
  expect(columns({}, { format: 'raw' })).toEqual(Array(3).fill(String(width)))
  expect(columns({}, { prefix: '{rank}:' })).toEqual(Array(3).fill(without('0: ')))
  expect(columns({ COLUMNS: '200' })).toEqual(Array(3).fill('191'))
})

it('tells the ranks whether to encrypt, and overrides TSRUN_TLS of the environment', () => {
  const place = { plan: { runId: 'run', master, nodes }, nodeRank: 0 }
  const told = (tls: boolean): (string | undefined)[] => {
    const protection = toProtection({ tls })
    const ranks = planAttempt({ ...jobOf(), protection }, place, 0)
    return ranks.map(({ environment }) => environment['TSRUN_TLS'])
  }
  expect(told(true)).toEqual(['1', '1', '1'])
  expect(told(false)).toEqual(['', '', ''])
})

it('numbers the ranks across hosts with different numbers of ranks', () => {
  const nodes = [2, 3, 1].map((nproc, nodeRank) => ({ ...node, nodeRank, nproc }))
  const ranks = nodes.flatMap(({ nodeRank }) =>
    planAttempt(jobOf(), { plan: { runId: 'run', master, nodes }, nodeRank }, 0).map(
      ({ environment }) => readRankEnvironment(environment)!,
    ),
  )
  const facts = ranks.map(({ rank, localRank, localWorldSize, nodeRank, nnodes, worldSize }) =>
    [rank, localRank, localWorldSize, nodeRank, nnodes, worldSize].join(' '),
  )
  expect(facts).toEqual([
    '0 0 2 0 3 6',
    '1 1 2 0 3 6',
    '2 0 3 1 3 6',
    '3 1 3 1 3 6',
    '4 2 3 1 3 6',
    '5 0 1 2 3 6',
  ])
})

it('a plan is printed without the token', () => {
  const text = describePlan(plan)
  expect(text).toContain(
    `\n  ${process.execPath} --enable-source-maps /train.mjs --name 'it'\\''s'\n\nrank 1\n`,
  )
  expect(text).not.toContain('secret')
})

const alone = { nnodes: 1, tokenFile: undefined }

it('run IDs sort by start time, and a missing token is generated', () => {
  const identity = makeRunIdentity({}, alone, new Date('2026-11-21T15:30:12.345Z'))
  expect(identity.runId).toMatch(/^20261121-153012-[0-9a-f]{6}$/)
  expect(identity.token).toMatch(/^[0-9a-f]{64}$/)
  const token = 'AB'.repeat(16)
  expect(makeRunIdentity({ TSRUN_TOKEN: token }, alone).token).toBe(token)
  expect(() => makeRunIdentity({ TSRUN_TOKEN: 'abc' }, alone)).toThrow('TSRUN_TOKEN')
})

it('the token may come from a file, and is required with several hosts', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tsrun-token-'))
  const tokenFile = join(folder, 'token')
  const token = '0f'.repeat(32)
  try {
    const read = (text: string): string => {
      writeFileSync(tokenFile, text, { mode: 0o600 })
      return makeRunIdentity({ TSRUN_TOKEN: 'ab'.repeat(16) }, { nnodes: 2, tokenFile }).token
    }
    expect(read(`${token}\n`)).toBe(token)
    expect(() => read('')).toThrow(`The file ${tokenFile} (--token-file) holds no hexadecimal`)
    expect(() => read('hello')).toThrow('--token-file')
    expect(() => read('0'.repeat(64))).toThrow('not all 0')
    chmodSync(tokenFile, 0o440)
    expect(read(token)).toBe(token)
    chmodSync(tokenFile, 0o644)
    expect(() => read(token)).toThrow('can be read by others (mode 0644): chmod 600')
    // Windows shows this mode for every file.
    expect(await onPlatform('win32', () => read(token))).toBe(token)
  } finally {
    rmSync(folder, { recursive: true })
  }
  expect(() => makeRunIdentity({}, { nnodes: 2, tokenFile })).toThrow('cannot be read')
  for (const env of [{}, { TSRUN_TOKEN: '' }]) {
    expect(() => makeRunIdentity(env, { nnodes: 2, tokenFile: undefined })).toThrow(
      expect.objectContaining({ code: 'ERR_TSR_TOKEN_MISSING' }),
    )
  }
})

it('numbers the ranks of a role across the hosts that have the role', () => {
  const roles = ['trainer', 'reader', 'trainer']
  const nodes = roles.map((role, nodeRank) => ({ ...node, nodeRank, nproc: 2, role }))
  const job = jobOf()
  const trainers = { ...job, placement: { ...job.placement, role: 'trainer' } }
  const ranks = planAttempt(trainers, { plan: { runId: 'run', master, nodes }, nodeRank: 2 }, 0)
  expect(ranks[1]!.environment).toMatchObject({
    ...{ RANK: '5', ROLE_NAME: 'trainer', ROLE_RANK: '3', ROLE_WORLD_SIZE: '4' },
  })
})

it('--virtual-local-rank sets LOCAL_RANK to 0, and still passes the true local rank to the library', () => {
  const place = { plan: { runId: 'run', master, nodes }, nodeRank: 0 }
  const [, second] = planAttempt(jobOf(true), place, 0)
  expect(second!.environment['LOCAL_RANK']).toBe('0')
  expect(readRankEnvironment(second!.environment)).toMatchObject({ rank: 1, localRank: 1 })
})
