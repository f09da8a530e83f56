import { readRankEnvironment } from '@tsrun/core'
import { describePlan, describePlanAsJson } from '../../../packages/launcher/src/plan/dry-run.ts'
import { planRanks } from '../../../packages/launcher/src/plan/rank-plan.ts'
import { makeRunIdentity } from '../../../packages/launcher/src/plan/run-identity.ts'

const plan = planRanks({
  options: { nproc: 3, scriptArguments: ['--name', "it's"] },
  node: '/bin/node',
  nodeArguments: ['--enable-source-maps'],
  script: '/train.mjs',
  masterAddr: '127.0.0.1',
  masterPort: 29500,
  runId: 'run',
  token: 'secret',
  restartCount: 2,
  extraEnvironment: { FORCE_COLOR: '1' },
})

it('gives every rank an environment that the library reads back', () => {
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
    environment: { FORCE_COLOR: '1' },
    command: ['/bin/node', '--enable-source-maps', '/train.mjs', '--name', "it's"],
  })
})

it('can be shown, without the secret', () => {
  const text = describePlan(plan)
  expect(text).toContain(
    `\n  /bin/node --enable-source-maps /train.mjs --name 'it'\\''s'\n\nrank 1\n`,
  )
  expect(text + describePlanAsJson(plan)).not.toContain('secret')
})

it('names runs so that they sort by time, and makes a token unless one is given', () => {
  const identity = makeRunIdentity({}, new Date('2026-11-21T15:30:12.345Z'))
  expect(identity.runId).toMatch(/^20261121-153012-[0-9a-f]{6}$/)
  expect(identity.token).toMatch(/^[0-9a-f]{64}$/)
  const token = 'AB'.repeat(16)
  expect(makeRunIdentity({ TSRUN_TOKEN: token }).token).toBe(token)
  expect(() => makeRunIdentity({ TSRUN_TOKEN: 'abc' })).toThrow('TSRUN_TOKEN')
})
