/** A flag of the command line. Help, environment, completion and docs are made from this table. */
export interface Flag {
  readonly name: string
  /** Other names for the same flag. */
  readonly aliases?: readonly string[]
  /** What help shows in place of the value; a flag without one is a switch. */
  readonly value?: string
  readonly description: string
  /** The value where neither the command line nor the environment gives one. */
  readonly fallback?: string
  /** The name of torchrun's flag, whose PET_* variable is read as well. */
  readonly torchrun?: string
}

/** In the order of the help page. Each flag may be spelled with dashes or underscores. */
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
    description: 'the number of this host, from 0; the store of the job runs on node 0',
    torchrun: 'node-rank',
  },
  {
    name: 'rdzv-endpoint',
    value: 'HOST[:PORT]',
    description:
      'name or address of node 0, and the port of its store (29500); the same on all hosts',
    torchrun: 'rdzv-endpoint',
  },
  {
    name: 'rdzv-timeout',
    value: 'SECONDS',
    description: 'how many seconds the hosts wait for each other at the start',
    fallback: '600',
  },
  {
    name: 'token-file',
    value: 'FILE',
    description: 'a file with the secret that the hosts share, instead of TSRUN_TOKEN',
  },
  {
    name: 'iface',
    value: 'NAME|ADDRESS',
    description: 'the network interface at which other hosts reach the ranks of this one',
  },
  {
    name: 'port-range',
    value: 'A-B',
    description: 'the ports on which the ranks of this host listen, for firewalls; default: any',
  },
  {
    name: 'host-timeout',
    value: 'SECONDS',
    description: 'the job fails when a host has been silent for this many seconds',
    fallback: '30',
  },
  {
    name: 'master-addr',
    value: 'HOST',
    description: 'the address of the store; with --master-port the same as --rdzv-endpoint',
    fallback: '127.0.0.1',
    torchrun: 'master-addr',
  },
  {
    name: 'master-port',
    value: 'PORT',
    description: 'the port of the store; 0: any free one, or 29500 with several hosts',
    fallback: '0',
    torchrun: 'master-port',
  },
  {
    name: 'max-restarts',
    value: 'N',
    description: 'how often all ranks are started again after a failure',
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
    description: 'also write the output to DIR/RUN-ID/attempt_N/RANK/stdout.log and stderr.log',
    torchrun: 'log-dir',
  },
  {
    name: 'log-format',
    value: 'pretty|json|raw',
    description: 'pretty: with [rank 3] prefixes; json: one object per line; raw: unchanged lines',
    fallback: 'pretty',
  },
  {
    name: 'ranks',
    value: 'LIST',
    description: 'show only the output of these ranks, for example 0,2-3',
  },
  {
    name: 'summary',
    description:
      'show time, CPU time and peak memory of each rank at the end, or not: --no-summary',
    fallback: 'true',
  },
  {
    name: 'dry-run',
    description: 'print the environment and command of each rank, and start nothing',
    fallback: 'false',
  },
] as const satisfies readonly Flag[]

export type FlagName = (typeof flags)[number]['name']

/** The table with one type for all flags. */
export const flagTable: readonly (Flag & { readonly name: FlagName })[] = flags

/** The flags that the command line gives. */
export type FlagValues = Partial<Record<FlagName, string>>
