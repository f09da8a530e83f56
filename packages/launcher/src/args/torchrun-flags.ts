import { flag } from '@tsrun/core'
import type { Flags } from './flag.ts'
import { anyTime, backend, eventHandler, jobName, logsSpecs, startMethod } from './readers.ts'

/** Flags of torchrun that tsrun accepts for compatibility. */
export const torchrunFlags = {
  standalone: {
    section: 'As for torchrun:',
    reads: flag,
    description: 'a job of this host alone, with a free port; what is the case without hosts',
    fallback: 'false',
    torchrun: 'standalone',
  },
  'rdzv-backend': {
    reads: backend,
    value: 'c10d|static',
    description: 'static: --node-rank is needed; c10d: the hosts are numbered as they arrive',
    torchrun: 'rdzv-backend',
    differs:
      '`etcd` and `etcd-v2` are refused: the hosts need no service beside the store of node 0',
  },
  'rdzv-id': {
    reads: jobName,
    off: 'none',
    value: 'NAME',
    description: 'the name of the job; hosts with another one are refused',
    torchrun: 'rdzv-id',
    differs: 'the run id begins with it, and has a date and a random part as well',
  },
  'rdzv-conf': {
    value: 'K=V,...',
    description:
      'timeout or join_timeout: --rdzv-timeout; keep_alive_interval and keep_alive_max_attempt: ' +
      '--host-timeout; last_call_timeout: seconds for which --nnodes MIN:MAX waits for more than MIN; ' +
      'is_host: whether this host is node 0',
    torchrun: 'rdzv-conf',
    differs:
      'other settings of torchrun are accepted and have no effect; `store_type=file` is refused',
  },
  'local-addr': {
    value: 'ADDRESS',
    description: 'the address at which other hosts reach this one: --iface',
    torchrun: 'local-addr',
  },
  'monitor-interval': {
    reads: anyTime,
    value: 'SECONDS',
    description: 'has no effect: the launcher is told when a rank ends, and does not ask',
    torchrun: 'monitor-interval',
    differs: 'has no effect: the launcher is told when a rank ends, and does not ask',
  },
  'start-method': {
    reads: startMethod,
    value: 'spawn',
    description: 'only spawn: each rank is a process of its own',
    torchrun: 'start-method',
    differs:
      'only `spawn`; `fork` and `forkserver` are refused, as a process of Node cannot be forked',
  },
  'run-path': {
    reads: flag,
    description: 'has no effect: a script is always run by its path',
    fallback: 'false',
    torchrun: 'run-path',
    differs: 'has no effect: a script is always run by its path',
  },
  'event-log-handler': {
    reads: eventHandler,
    value: 'null|console',
    description: 'console: what --event-log writes goes to stderr; null: nowhere',
    torchrun: 'event-log-handler',
    differs:
      '`null` and `console`; `--event-log FILE` writes [events of its own](launcher.md#the-events-of-a-job)',
  },
  'log-line-prefix-template': {
    value: 'TEMPLATE',
    description: '--log-prefix',
    torchrun: 'log-line-prefix-template',
    variable: 'TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE',
  },
  'logs-specs': {
    reads: logsSpecs,
    value: 'default',
    description: 'only default; see --log-dir, --redirects and --tee',
    torchrun: 'logs-specs',
    differs:
      'only `default`: plug-ins of torch are refused; see `--log-dir`, `--redirects`, `--tee`',
  },
} satisfies Flags
