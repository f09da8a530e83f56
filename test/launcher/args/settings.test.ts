import { completeSettings, describeEnvironment } from '../../internals/launcher/args.ts'

it('a flag takes precedence over TSRUN_*, TSRUN_* over PET_*, and PET_* over the default', () => {
  const env = {
    TSRUN_NPROC: '2',
    TSRUN_GRACE: '5',
    TSRUN_MASTER_PORT: '',
    PET_GRACE: '6',
    PET_MAX_RESTARTS: '7',
    PET_LOG_FORMAT: 'json',
  }
  expect(completeSettings({ nproc: '1' }, env)).toEqual({
    nproc: { value: '1', source: '--nproc' },
    stdin: { value: '0', source: 'default' },
    'cpu-prof': { value: 'false', source: 'default' },
    'heap-prof': { value: 'false', source: 'default' },
    nnodes: { value: '1', source: 'default' },
    'rdzv-timeout': { value: '600', source: 'default' },
    'host-timeout': { value: '30', source: 'default' },
    'master-addr': { value: '127.0.0.1', source: 'default' },
    'master-port': { value: '0', source: 'default' },
    'max-restarts': { value: '7', source: 'PET_MAX_RESTARTS' },
    grace: { value: '5', source: 'TSRUN_GRACE' },
    'log-format': { value: 'pretty', source: 'default' },
    summary: { value: 'false', source: 'default' },
    tls: { value: 'false', source: 'default' },
    module: { value: 'false', source: 'default' },
    'no-python': { value: 'false', source: 'default' },
    role: { value: 'default', source: 'default' },
    'virtual-local-rank': { value: 'false', source: 'default' },
    'signals-to-handle': { value: 'SIGTERM,SIGINT,SIGHUP,SIGQUIT', source: 'default' },
    standalone: { value: 'false', source: 'default' },
    'run-path': { value: 'false', source: 'default' },
    'trace-max-size': { value: '1GiB', source: 'default' },
    detach: { value: 'false', source: 'default' },
    'dry-run': { value: 'false', source: 'default' },
  })
})

it('the launcher lists the settings that came from the environment, if there are any', () => {
  const settings = completeSettings({}, { PET_NPROC_PER_NODE: 'auto', TSRUN_RANKS: '0' })
  expect(describeEnvironment(settings)).toBe(
    'from the environment: nproc=auto (PET_NPROC_PER_NODE), ranks=0 (TSRUN_RANKS)',
  )
  expect(describeEnvironment(completeSettings({ nproc: '3' }, {}))).toBeUndefined()
})
