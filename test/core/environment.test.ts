import {
  parsePortRange,
  readRankEnvironment,
  toEnvironment,
  type RankEnvironment,
} from '@tsrun/core'

const complete = {
  RANK: '3',
  WORLD_SIZE: '4',
  LOCAL_RANK: '1',
  LOCAL_WORLD_SIZE: '2',
  NODE_RANK: '1',
  TSRUN_NNODES: '2',
  MASTER_ADDR: 'node0',
  MASTER_PORT: '29500',
  TSRUN_RUN_ID: 'run-7',
  TSRUN_TOKEN: 'beef',
  TSRUN_RESTART_COUNT: '2',
}

describe('the rank environment', () => {
  it('is undefined if no variables are set, for a world of one', () => {
    expect(readRankEnvironment({})).toBeUndefined()
    expect(readRankEnvironment({ MASTER_ADDR: 'node0' })).toBeUndefined()
  })

  it('is read with all its variables', () => {
    expect(readRankEnvironment(complete)).toEqual({
      rank: 3,
      worldSize: 4,
      localRank: 1,
      localWorldSize: 2,
      nodeRank: 1,
      nnodes: 2,
      masterAddr: 'node0',
      masterPort: 29500,
      runId: 'run-7',
      token: 'beef',
      restartCount: 2,
    })
  })

  it('needs only the variables that torchrun sets', () => {
    const { RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT } = complete
    expect(readRankEnvironment({ RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT })).toMatchObject({
      localRank: 3,
      localWorldSize: 4,
      nodeRank: 0,
      nnodes: 1,
      restartCount: 0,
    })
    const onTwoHosts = { RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, LOCAL_WORLD_SIZE: '2' }
    expect(readRankEnvironment(onTwoHosts)).toMatchObject({ localRank: 1 })
  })

  it('falls back to the second variable name if the first variable is empty', () => {
    const empty = { ...complete, TSRUN_LOCAL_RANK: '', TSRUN_STORE_PORT: '' }
    expect(readRankEnvironment(empty)).toMatchObject({ localRank: 1, masterPort: 29500 })
  })

  it('is unchanged after it is written and read again', () => {
    const rank: RankEnvironment = readRankEnvironment(complete)!
    const written = toEnvironment(rank)
    expect(readRankEnvironment(written)).toEqual(rank)
    expect(written['GROUP_RANK']).toBe('1')
  })

  it.each([
    ['RANK', undefined, 'not set'],
    ['WORLD_SIZE', undefined, 'not set'],
    ['MASTER_ADDR', undefined, 'not set'],
    ['MASTER_PORT', undefined, 'not set'],
    ['MASTER_ADDR', '', 'not set'],
    ['RANK', '', 'not set'],
    ['RANK', '4', 'from 0 to 3'],
    ['RANK', '-1', 'from 0 to 3'],
    ['RANK', '1.5', 'from 0 to 3'],
    ['RANK', '0x1', 'from 0 to 3'],
    ['RANK', ' 1', 'from 0 to 3'],
    ['WORLD_SIZE', '0', 'a whole number from 1'],
    ['WORLD_SIZE', 'four', '"four"'],
    ['WORLD_SIZE', '99999999999999999999', 'a whole number from 1'],
    ['LOCAL_RANK', '2', 'from 0 to 1'],
    ['LOCAL_WORLD_SIZE', '5', 'from 1 to 4'],
    ['NODE_RANK', '4', 'from 0 to 3'],
    ['TSRUN_NNODES', '0', 'from 1 to 4'],
    ['MASTER_PORT', '0', 'from 1 to 65535'],
    ['MASTER_PORT', '65536', 'from 1 to 65535'],
    ['TSRUN_RESTART_COUNT', 'no', 'a whole number from 0'],
  ])('is refused if %s is %p', (variable, value, expected) => {
    expect(() => readRankEnvironment({ ...complete, [variable]: value })).toThrow(
      expect.objectContaining({
        code: 'ERR_TSR_ENVIRONMENT',
        facts: expect.objectContaining({ variable }) as unknown,
        message: expect.stringContaining(expected) as unknown,
      }) as Error,
    )
  })
})

describe('the variable for a range of ports', () => {
  it.each([
    ['29600-29699', { first: 29_600, last: 29_699 }],
    [' 29600 ', { first: 29_600, last: 29_600 }],
    ['1-65535', { first: 1, last: 65_535 }],
    ['0-5', undefined],
    ['5-4', undefined],
    ['1-65536', undefined],
    ['', undefined],
    ['a-b', undefined],
    ['-5', undefined],
  ])('is parsed from %j, or refused', (text, range) => {
    expect(parsePortRange(text)).toEqual(range)
  })
})
