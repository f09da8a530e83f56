import {
  completeSettings,
  flagTable,
  toJobOptions,
  type FlagValues,
} from '../../internals/launcher/args.ts'

const units = ', or a time such as 250ms, 10m or 2h'
const machine = { cores: 1, gpus: () => 0, usesGpus: () => false }

const expected: FlagValues = {
  nproc: 'an integer from 1 to 4096, auto, gpu or cpu',
  nnodes: 'an integer from 1 to 4096, or a range as in 2:4',
  'rdzv-endpoint': 'HOST:PORT, for example node0:29500',
  'rdzv-timeout': `a number of seconds above 0, up to 86400${units}`,
  role: 'a name',
  'virtual-local-rank': 'true or false',
  'numa-binding': 'one of node, socket, exclusive, core-complex',
  bind: 'one of core, numa, none',
  tls: 'true or false',
  'port-range': 'two ports, for example 29600-29699',
  'host-timeout': `a number of seconds above 0, up to 86400${units}`,
  'master-addr': 'a host name or address',
  'master-port': 'an integer from 0 to 65535',
  'max-restarts': 'an integer from 0 to 1000000',
  grace: `a number of seconds from 0 to 86400${units}`,
  'signals-to-handle': 'names of signals, for example SIGTERM,SIGUSR1, but not SIGKILL or SIGSTOP',
  'job-timeout': `a number of seconds above 0, up to 2000000${units}`,
  'log-max-size': 'a size, as in 24GB or 24GiB',
  'log-format': 'pretty, json or raw',
  ranks: 'ranks and ranges of ranks, for example 0,2-3',
  'local-ranks-filter': 'ranks and ranges of ranks, for example 0,2-3',
  redirects: '0 to 3, or such numbers by local rank, as in 0:1,1:3',
  tee: '0 to 3, or such numbers by local rank, as in 0:1,1:3',
  summary: 'true or false',
  'trace-steps': 'steps from 1, as in 10:20, 10: or 15',
  'trace-max-size': 'a size, as in 24GB or 24GiB',
  dashboard: 'a port from 0 to 65535',
  'dashboard-linger': `a number of seconds from 0 to 86400${units}`,
  metrics: '[HOST:]PORT, for example 9400, 0.0.0.0:9400 or [::1]:9400',
  module: 'true or false',
  'no-python': 'true or false',
  stdin: 'the number of a rank, all or none',
  'node-args': 'arguments as in a shell, with every quotation mark closed',
  'inspect-rank': 'the number of a rank',
  'cpu-prof': 'true or false',
  'heap-prof': 'true or false',
  detach: 'true or false',
  'dry-run': 'true or false',
  standalone: 'true or false',
  'rdzv-backend': 'c10d or static, as hosts need no service beside the store of node 0',
  'rdzv-id': 'up to 100 letters, digits and . _ -',
  'monitor-interval': `a number of seconds${units}`,
  'start-method': 'spawn: each rank is a process of its own',
  'run-path': 'true or false',
  'event-log-handler': 'null or console; --event-log FILE names a file',
  'logs-specs': 'default: --log-dir, --redirects and --tee say where output goes',
}

it('each flag that does not accept every text has a tested error message', () => {
  const read = flagTable.filter(({ reads }) => reads !== undefined).map(({ name }) => name)
  expect(Object.keys(expected)).toEqual(read)
})

it.each(Object.entries(expected))('an error says that --%s expects %s', (name, words) => {
  const value = { 'master-addr': ' ', role: ' ', 'node-args': '"' }[name] ?? 'a b'
  const settings = completeSettings({ [name]: value }, {})
  const problem = `--${name} is ${JSON.stringify(value)}; expected ${words}.`
  expect(() => toJobOptions(settings, ['train.ts'], machine)).toThrow(problem)
})
