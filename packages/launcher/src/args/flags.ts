/** One flag of the command line; help, environment, completion and docs are made of this table. */
export interface Flag {
  readonly name: string
  /** Other names for the same flag. */
  readonly aliases?: readonly string[]
  /** What stands for the value in help; a flag without one is a switch. */
  readonly value?: string
  readonly description: string
  /** Used when neither the command line nor the environment says anything. */
  readonly fallback?: string
  /** Name of torchrun's flag, whose PET_* variable we honour. */
  readonly torchrun?: string
}

/** In the order of the help page. Every flag may be spelled with dashes or underscores. */
const flags = [
  {
    name: 'nproc',
    aliases: ['nproc-per-node'],
    value: 'N|auto',
    description: 'how many ranks to start; auto: one per CPU core',
    fallback: '1',
    torchrun: 'nproc-per-node',
  },
  {
    name: 'nnodes',
    value: 'N',
    description: 'how many hosts run the job; tsrun is started once on each',
    fallback: '1',
    torchrun: 'nnodes',
  },
  {
    name: 'node-rank',
    value: 'K',
    description: 'which of them this one is, from 0; node 0 hosts the store',
    torchrun: 'node-rank',
  },
  {
    name: 'rdzv-endpoint',
    value: 'HOST[:PORT]',
    description: 'name or address of node 0 and the port of the store (29500), the same everywhere',
    torchrun: 'rdzv-endpoint',
  },
  {
    name: 'rdzv-timeout',
    value: 'SECONDS',
    description: 'how many seconds the hosts wait for each other',
    fallback: '600',
  },
  {
    name: 'token-file',
    value: 'FILE',
    description: 'file with the secret that the hosts share, instead of TSRUN_TOKEN',
  },
  {
    name: 'iface',
    value: 'NAME|ADDRESS',
    description: 'network interface at which the ranks of this host are reached',
  },
  {
    name: 'port-range',
    value: 'A-B',
    description: 'ports at which the ranks of this host listen, for firewalls; default: any',
  },
  {
    name: 'host-timeout',
    value: 'SECONDS',
    description: 'a host that is silent for so many seconds is given up, and the job with it',
    fallback: '30',
  },
  {
    name: 'master-addr',
    value: 'HOST',
    description: 'the same as --rdzv-endpoint, in two parts: where the store of the job listens',
    fallback: '127.0.0.1',
    torchrun: 'master-addr',
  },
  {
    name: 'master-port',
    value: 'PORT',
    description: 'its port; 0: the kernel picks a free one, or 29500 with several hosts',
    fallback: '0',
    torchrun: 'master-port',
  },
  {
    name: 'max-restarts',
    value: 'N',
    description: 'how often all ranks are started again together after a failure',
    fallback: '0',
    torchrun: 'max-restarts',
  },
  {
    name: 'grace',
    aliases: ['shutdown-timeout'],
    value: 'SECONDS',
    description: 'seconds between SIGTERM and SIGKILL when ranks are stopped',
    fallback: '10',
    torchrun: 'shutdown-timeout',
  },
  {
    name: 'log-dir',
    value: 'DIR',
    description: 'also write DIR/RUN-ID/attempt_N/RANK/stdout.log and stderr.log',
    torchrun: 'log-dir',
  },
  {
    name: 'log-format',
    value: 'pretty|json|raw',
    description: 'pretty: [rank 3] prefixes; json: one object per line; raw: lines as they are',
    fallback: 'pretty',
  },
  {
    name: 'ranks',
    value: 'LIST',
    description: 'show the output of these ranks only, for example 0,2-3',
  },
  {
    name: 'summary',
    description: 'show time, CPU and peak memory of each rank at the end; --no-summary: do not',
    fallback: 'true',
  },
  {
    name: 'dry-run',
    description: 'print the environment and command of each rank, and start nothing',
    fallback: 'false',
  },
] as const satisfies readonly Flag[]

export type FlagName = (typeof flags)[number]['name']

/** The table as plain flags, for loops that treat all alike. */
export const flagTable: readonly (Flag & { readonly name: FlagName })[] = flags
