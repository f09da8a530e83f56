import type { FlagValues } from '../../../packages/launcher/src/args/flags.ts'
import {
  checkRanks,
  parseRankList,
  toJobOptions,
  type JobOptions,
} from '../../../packages/launcher/src/args/job-options.ts'
import { completeSettings } from '../../../packages/launcher/src/args/settings.ts'

const read = (values: FlagValues, command = ['train.ts', '--lr', '1']): JobOptions =>
  toJobOptions(completeSettings(values, {}), command, 12)

it('is complete and checked', () => {
  expect(read({})).toEqual({
    nproc: 1,
    nnodes: 1,
    nodeRank: 0,
    rdzvTimeout: 600_000,
    hostTimeout: 30_000,
    tokenFile: undefined,
    iface: undefined,
    portRange: undefined,
    masterAddr: '127.0.0.1',
    masterPort: 0,
    maxRestarts: 0,
    grace: 10_000,
    logDir: undefined,
    logFormat: 'pretty',
    ranks: undefined,
    summary: true,
    dryRun: false,
    script: 'train.ts',
    scriptArguments: ['--lr', '1'],
  })
})

it('counts the cores for auto, and takes fractions of seconds', () => {
  expect(read({ nproc: 'auto', grace: '0.25' })).toMatchObject({ nproc: 12, grace: 250 })
  expect(read({ grace: '30s', nproc: '4096' })).toMatchObject({ nproc: 4096, grace: 30_000 })
})

it.each<[FlagValues, string]>([
  [{ nproc: '0' }, '--nproc is "0"'],
  [{ nproc: '1.5' }, '--nproc is "1.5"'],
  [{ nproc: '' }, '--nproc is ""'],
  [{ nproc: '0x4' }, '--nproc is "0x4"'],
  [{ 'max-restarts': '-1' }, '--max-restarts is "-1"'],
  [{ 'master-addr': '' }, '--master-addr is ""'],
  [{ grace: '-1' }, '--grace is "-1"'],
  [{ summary: 'maybe' }, '--summary is "maybe"; expected true or false'],
  [{ ranks: 'one' }, '--ranks is "one"'],
])('refuses %j', (values, problem) => {
  expect(() => read(values)).toThrow(
    expect.objectContaining({ code: 'ERR_TSR_USAGE', message: expect.stringContaining(problem) }),
  )
})

it('checks --ranks when the size of the job is known', () => {
  const options = read({ ranks: '0-3' })
  checkRanks(options, 4)
  checkRanks(read({}), 1)
  expect(() => {
    checkRanks(options, 3)
  }).toThrow('--ranks names rank 3, but this job has ranks 0 to 2')
  expect(() => {
    checkRanks(options, 1)
  }).toThrow('--ranks names rank 3, but this job has only rank 0')
})

it('needs a script', () => {
  expect(() => read({}, [])).toThrow(expect.objectContaining({ code: 'ERR_TSR_USAGE' }))
})

describe('a list of ranks', () => {
  it.each([
    ['0', [0]],
    ['0,2-3', [0, 2, 3]],
    [' 1 , 1-2 ', [1, 2]],
  ])('reads %j', (text, ranks) => {
    expect([...(parseRankList(text) ?? [])]).toEqual(ranks)
  })

  it.each(['', 'a', '1-', '3-1', '1,,2', '-1', '0.5'])('refuses %j', (text) => {
    expect(parseRankList(text)).toBeUndefined()
  })
})
