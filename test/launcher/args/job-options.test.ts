import {
  toJobOptions,
  checkRanks,
  parseRankList,
  completeSettings,
  type FlagValues,
  type Capacity,
  type JobOptions,
} from '../../internals/launcher/args.ts'

const host: Capacity = { cores: 12, gpus: () => 0, usesGpus: () => false }

const read = (
  values: FlagValues,
  command = ['train.ts', '--lr', '1'],
  capacity = host,
): JobOptions => toJobOptions(completeSettings(values, {}), command, capacity)

it('job options are checked, and missing ones get defaults', () => {
  expect(read({})).toEqual({
    program: {
      kind: 'file',
      script: 'train.ts',
      arguments: ['--lr', '1'],
      nodeArguments: [],
      inspect: undefined,
      profiles: [],
      chaos: undefined,
      stdin: 0,
    },
    placement: {
      nproc: 1,
      nnodes: 1,
      minNodes: 1,
      nodeRank: 0,
      role: 'default',
      virtualLocalRank: false,
      binding: undefined,
      iface: undefined,
      portRange: undefined,
    },
    rendezvous: {
      host: '127.0.0.1',
      port: 0,
      isNodeZero: undefined,
      rdzvId: undefined,
      timeout: 600_000,
      lastCall: 10_000,
      hostTimeout: 30_000,
    },
    protection: {
      protection: 'none',
      certificate: undefined,
      tokenFile: undefined,
      environment: { TSRUN_TLS: '' },
    },
    output: {
      directory: undefined,
      format: 'pretty',
      ranks: undefined,
      localRanks: undefined,
      destinations: undefined,
      filters: { stdout: [], stderr: [] },
      summary: false,
    },
    restart: {
      maxRestarts: 0,
      grace: 10_000,
      signals: ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGQUIT'],
      jobTimeout: undefined,
    },
    detach: false,
    dryRun: false,
  })
})

it('--nproc auto starts a rank per core, and times may be fractions of seconds', () => {
  expect(read({ nproc: 'auto', grace: '0.25' })).toMatchObject({
    placement: { nproc: 12 },
    restart: { grace: 250 },
  })
  expect(read({ grace: '30s', nproc: '4096' })).toMatchObject({
    placement: { nproc: 4096 },
    restart: { grace: 30_000 },
  })
})

it('--job-timeout is read in seconds, or with a unit', () => {
  const limit = (text: string): number | undefined =>
    read({ 'job-timeout': text }).restart.jobTimeout
  expect(['1.5', '1000000', '100000s'].map(limit)).toEqual([1500, 1e9, 1e8])
  expect(['250ms', '10m', '1.5h', '2d'].map(limit)).toEqual([250, 600_000, 5_400_000, 172_800_000])
  expect(() => limit('0')).toThrow('a number of seconds above 0')
  expect(() => limit('3000000')).toThrow('up to 2000000')
})

it('--nproc gpu starts a rank per GPU, and so does auto if the backend uses GPUs', () => {
  const gpus = { ...host, gpus: () => 2 }
  expect(read({ nproc: 'gpu' }, undefined, gpus).placement.nproc).toBe(2)
  expect(read({ nproc: 'auto' }, undefined, gpus).placement.nproc).toBe(12)
  expect(
    read({ nproc: 'auto' }, undefined, { ...gpus, usesGpus: () => true }).placement.nproc,
  ).toBe(2)
  expect(
    read({ nproc: 'auto' }, undefined, { ...host, usesGpus: () => true }).placement.nproc,
  ).toBe(12)
  expect(read({ nproc: 'cpu' }, undefined, { ...gpus, usesGpus: () => true }).placement.nproc).toBe(
    12,
  )
})

it('--redirects and --tee determine where each stream of a rank goes', () => {
  const { destinations } = read({ redirects: '0:3,1:1', tee: '2' }).output
  const words = [0, 1, 2].map((rank) =>
    Object.values(destinations!(rank)).map(({ isShown, isWritten }) =>
      [isShown && 'shown', isWritten && 'written'].filter(Boolean).join('+'),
    ),
  )
  expect(words).toEqual([
    ['written', 'shown+written'],
    ['written', 'shown+written'],
    ['shown', 'shown+written'],
  ])
  expect(read({ redirects: '0', tee: '0' }).output.destinations).toBeUndefined()
})

it.each<[FlagValues, string]>([
  [{ nproc: 'gpu' }, '--nproc is gpu, but this host has none'],
  [{ redirects: '4' }, '--redirects is "4"; expected 0 to 3, or such numbers by local rank'],
  [{ tee: '0:1,1' }, '--tee is "0:1,1"'],
  [{ 'signals-to-handle': 'SIGTERM,SIGKILL' }, 'but not SIGKILL or SIGSTOP'],
  [{ 'numa-binding': 'here' }, 'expected one of node, socket, exclusive, core-complex'],
  [{ bind: 'socket' }, '--bind is "socket"; expected one of core, numa, none'],
  [{ bind: 'core', 'numa-binding': 'node' }, '--bind and --numa-binding exclude each other'],
  [{ module: 'true', 'no-python': 'true' }, '--module and --no-python exclude each other'],
  [{ 'start-method': 'fork' }, 'expected spawn: each rank is a process of its own'],
  [{ 'event-log-handler': 'mine' }, 'expected null or console; --event-log FILE names a file'],
  [{ 'log-prefix': '{rnk}' }, '{rnk} is no placeholder; there are {rank}, {local_rank}'],
  [{ 'logs-specs': 'mine' }, 'expected default: --log-dir, --redirects and --tee'],
  [{ 'monitor-interval': 'often' }, '--monitor-interval is "often"; expected a number of seconds'],
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

it('--ranks is checked against the number of ranks of the job', () => {
  const options = read({ ranks: '0-3' })
  checkRanks(options, 4)
  checkRanks(read({}), 1)
  expect(() => {
    checkRanks(options, 3)
  }).toThrow('--ranks names rank 3, but this job has ranks 0 to 2')
  expect(() => {
    checkRanks(read({ ranks: '0-999999' }), 2)
  }).toThrow('--ranks names rank 999999, but this job has ranks 0 to 1')
  expect(() => {
    checkRanks(options, 1)
  }).toThrow('--ranks names rank 3, but this job has only rank 0')
})

it('--stdin and --inspect-rank are checked against the number of ranks of the job', () => {
  expect(() => {
    checkRanks(read({ stdin: '3' }), 3)
  }).toThrow('--stdin names rank 3, but this job has ranks 0 to 2')
  expect(() => {
    checkRanks(read({ 'inspect-rank': '1' }), 1)
  }).toThrow('--inspect-rank names rank 1, but this job has only rank 0')
  checkRanks(read({ stdin: 'all', inspect: '9229' }), 1)
})

it('an endpoint replaces the master address and port, which scripts may pass empty', () => {
  const given = { 'rdzv-endpoint': 'n0:29500', 'master-addr': '', 'master-port': '', nnodes: '2' }
  expect(read(given).rendezvous).toMatchObject({ host: 'n0', port: 29500 })
})

it('a job without a script is refused', () => {
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

it.each([
  ['9400', '127.0.0.1', 9400],
  ['0', '127.0.0.1', 0],
  ['0.0.0.0:9400', '0.0.0.0', 9400],
  ['node0:65535', 'node0', 65535],
  ['[::1]:9400', '::1', 9400],
])('reads --metrics %s', (metrics, address, port) => {
  expect(read({ metrics }).output.metrics).toEqual({ host: address, port })
})
