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
  /** A variable of torchrun that is read last. */
  readonly variable?: string
  /** What differs from that flag, for docs/torch.md; Markdown. */
  readonly differs?: string
  /** Where help shows it; default: among the flags of a job. */
  readonly group?: 'torchrun'
}

/** In the order of the help page. Each flag may be spelled with dashes or underscores. */
const flags = [
  {
    name: 'nproc',
    aliases: ['nproc-per-node'],
    value: 'N|auto|gpu|cpu',
    description:
      'how many ranks to start; gpu: one for each GPU; cpu: one for each core; auto: gpu where the ' +
      'backend uses GPUs, else cpu',
    fallback: '1',
    torchrun: 'nproc-per-node',
    differs: '`xpu` and other accelerators of torch are refused',
  },
  {
    name: 'nnodes',
    value: 'N|MIN:MAX',
    description:
      'how many hosts run the job, on each of which tsrun is started once; with a range, hosts may join ' +
      'and leave while it runs',
    fallback: '1',
    torchrun: 'nnodes',
  },
  {
    name: 'node-rank',
    value: 'K',
    description:
      'the number of this host, from 0; without it, the host that --rdzv-endpoint names is node 0, and ' +
      'the others are numbered as they arrive',
    torchrun: 'node-rank',
    differs: 'a given number always counts; torchrun ignores it unless the backend is `static`',
  },
  {
    name: 'rdzv-endpoint',
    value: 'HOST[:PORT]',
    description:
      'name or address of node 0, and the port of its store (29500); the same on all hosts',
    torchrun: 'rdzv-endpoint',
    differs: 'without a port it is 29500, or 29400 with `--rdzv-backend c10d`',
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
    differs: 'on one host the kernel picks a free port when none is given',
  },
  {
    name: 'max-restarts',
    value: 'N',
    description: 'how often all ranks are started again after a failure',
    fallback: '0',
    torchrun: 'max-restarts',
    differs: 'restarts are counted for the whole job, not per host',
  },
  {
    name: 'grace',
    aliases: ['shutdown-timeout'],
    value: 'SECONDS',
    description: 'seconds between SIGTERM and SIGKILL when ranks are stopped',
    fallback: '10',
    torchrun: 'shutdown-timeout',
    differs: '10 s by default, not 30',
  },
  {
    name: 'log-dir',
    value: 'DIR',
    description: 'also write the output to DIR/RUN-ID/attempt_N/RANK/stdout.log and stderr.log',
    torchrun: 'log-dir',
    differs:
      '`DIR/RUN-ID/attempt_N/RANK/stdout.log` and `stderr.log`: folders have ranks of the job; all output is written when neither `--redirects` nor `--tee` is given',
  },
  {
    name: 'log-format',
    value: 'pretty|json|raw',
    description: 'pretty: with [rank 3] prefixes; json: one object per line; raw: unchanged lines',
    fallback: 'pretty',
  },
  {
    name: 'log-prefix',
    value: 'TEMPLATE',
    description:
      'the prefix of the lines of a rank in the format pretty, for example "[{role}{rank}:{host}] {time}"; ' +
      'there are {rank}, {local_rank}, {role}, {host}, {node}, {pid}, {time}, {elapsed}, {stream}, ' +
      '{generation}',
    variable: 'TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE',
  },
  {
    name: 'event-log',
    value: 'FILE',
    description:
      'append what happens to the job to FILE, one JSON object per line; the ranks are those of this host',
  },
  {
    name: 'ranks',
    value: 'LIST',
    description: 'show only the output of these ranks of the job, for example 0,2-3',
  },
  {
    name: 'local-ranks-filter',
    value: 'LIST',
    description: 'show only the output of these ranks of each host, for example 0',
    torchrun: 'local-ranks-filter',
  },
  {
    name: 'redirects',
    aliases: ['r'],
    value: '0|1|2|3|MAP',
    description:
      'write output to files of --log-dir and do not show it: 1 stdout, 2 stderr, 3 both, or by local ' +
      'rank, as in 0:1,1:3',
    torchrun: 'redirects',
    differs: 'without `--log-dir`, the files are in a new folder of the temporary directory',
  },
  {
    name: 'tee',
    aliases: ['t'],
    value: '0|1|2|3|MAP',
    description: 'the same, but show the output as well',
    torchrun: 'tee',
    differs: 'the prefix of a line is `[rank 3]`, with and without this flag',
  },
  {
    name: 'duplicate-stdout-filters',
    value: 'TEXTS',
    description:
      'also write the lines of stdout that contain one of these texts, separated by commas, of all ' +
      'ranks to filtered_stdout.log',
    torchrun: 'duplicate-stdout-filters',
  },
  {
    name: 'duplicate-stderr-filters',
    value: 'TEXTS',
    description: 'the same for stderr and filtered_stderr.log',
    torchrun: 'duplicate-stderr-filters',
  },
  {
    name: 'summary',
    description:
      'show time, CPU time and peak memory of each rank at the end, or not: --no-summary',
    fallback: 'true',
  },
  {
    name: 'module',
    aliases: ['m'],
    description: 'run a module of a package, named as in import, instead of a file',
    fallback: 'false',
    torchrun: 'module',
    differs: 'the module is resolved as `import` does from the working directory',
  },
  {
    name: 'no-python',
    description: 'run any program instead of a script: bash, Python, a binary',
    fallback: 'false',
    torchrun: 'no-python',
  },
  {
    name: 'role',
    value: 'NAME',
    description: 'the role of the ranks, which they get as ROLE_NAME',
    fallback: 'default',
    torchrun: 'role',
  },
  {
    name: 'virtual-local-rank',
    description: 'LOCAL_RANK is 0 in each rank, which sees one GPU only',
    fallback: 'false',
    torchrun: 'virtual-local-rank',
    differs:
      'each rank sees [one GPU](tensorflow.md#what-the-launcher-gives-each-rank) without this flag as well',
  },
  {
    name: 'numa-binding',
    value: 'node|socket|exclusive|core-complex',
    description:
      'bind each rank to cores: those of a NUMA node, of a socket, a share of a node of its own, or ' +
      'cores with one last-level cache',
    torchrun: 'numa-binding',
    differs: 'ranks without a GPU are spread over the nodes; torch needs GPUs',
  },
  {
    name: 'bind',
    value: 'core|numa|none',
    description:
      'bind each rank to cores that this process may use: to its own share of them, or to those of a ' +
      'NUMA node, as --numa-binding node does; none: to no cores',
  },
  {
    name: 'signals-to-handle',
    value: 'LIST',
    description: 'the signals to the launcher that stop the job',
    fallback: 'SIGTERM,SIGINT,SIGHUP,SIGQUIT',
    torchrun: 'signals-to-handle',
  },
  {
    name: 'stdin',
    value: 'K|all|none',
    description: 'the rank of the job that gets the standard input of tsrun, or all, or none',
    fallback: '0',
  },
  {
    name: 'node-args',
    value: 'ARGS',
    description:
      'more arguments of Node for the ranks, in one text, as in --node-args="--expose-gc --max-old-space-size=8192"',
  },
  {
    name: 'inspect',
    value: '[HOST:]PORT|auto',
    description:
      'each rank listens for a debugger at 127.0.0.1 or HOST: at PORT + its local rank, or at any free port',
  },
  {
    name: 'inspect-rank',
    value: 'K',
    description:
      'only this rank listens for a debugger, at port 9229 or that of --inspect, and waits for it before ' +
      'the first line of the script',
  },
  {
    name: 'cpu-prof',
    description: 'write a CPU profile of each rank into the folder of its log files',
    fallback: 'false',
  },
  {
    name: 'heap-prof',
    description: 'write a heap profile of each rank into the folder of its log files',
    fallback: 'false',
  },
  {
    name: 'job-timeout',
    value: 'SECONDS',
    description:
      'end the job after this time with exit code 124, and show the JavaScript stacks of its ranks first',
  },
  {
    name: 'chaos',
    value: 'FILE',
    description:
      'bring the faults over the ranks that FILE (YAML or JSON) lists, to see whether the job withstands them',
  },
  {
    name: 'standalone',
    description: 'a job of this host alone, with a free port; what is the case without hosts',
    fallback: 'false',
    torchrun: 'standalone',
    group: 'torchrun',
  },
  {
    name: 'rdzv-backend',
    value: 'c10d|static',
    description: 'static: --node-rank is needed; c10d: the hosts are numbered as they arrive',
    torchrun: 'rdzv-backend',
    differs:
      '`etcd` and `etcd-v2` are refused: the hosts need no service beside the store of node 0',
    group: 'torchrun',
  },
  {
    name: 'rdzv-id',
    value: 'NAME',
    description: 'the name of the job; hosts with another one are refused',
    torchrun: 'rdzv-id',
    differs: 'the run id begins with it, and has a date and a random part as well',
    group: 'torchrun',
  },
  {
    name: 'rdzv-conf',
    value: 'K=V,...',
    description:
      'timeout or join_timeout: --rdzv-timeout; keep_alive_interval and keep_alive_max_attempt: ' +
      '--host-timeout; last_call_timeout: seconds for which --nnodes MIN:MAX waits for more than MIN; ' +
      'is_host: whether this host is node 0',
    torchrun: 'rdzv-conf',
    differs:
      'other settings of torchrun are accepted and have no effect; `store_type=file` is refused',
    group: 'torchrun',
  },
  {
    name: 'local-addr',
    value: 'ADDRESS',
    description: 'the address at which other hosts reach this one: --iface',
    torchrun: 'local-addr',
    group: 'torchrun',
  },
  {
    name: 'monitor-interval',
    value: 'SECONDS',
    description: 'has no effect: the launcher is told when a rank ends, and does not ask',
    torchrun: 'monitor-interval',
    differs: 'has no effect: the launcher is told when a rank ends, and does not ask',
    group: 'torchrun',
  },
  {
    name: 'start-method',
    value: 'spawn',
    description: 'only spawn: each rank is a process of its own',
    torchrun: 'start-method',
    differs:
      'only `spawn`; `fork` and `forkserver` are refused, as a process of Node cannot be forked',
    group: 'torchrun',
  },
  {
    name: 'run-path',
    description: 'has no effect: a script is always run by its path',
    fallback: 'false',
    torchrun: 'run-path',
    differs: 'has no effect: a script is always run by its path',
    group: 'torchrun',
  },
  {
    name: 'event-log-handler',
    value: 'null|console',
    description: 'console: what --event-log writes goes to stderr; null: nowhere',
    torchrun: 'event-log-handler',
    differs:
      '`null` and `console`; `--event-log FILE` writes [events of its own](launcher.md#the-events-of-a-job)',
    group: 'torchrun',
  },
  {
    name: 'logs-specs',
    value: 'default',
    description: 'only default; see --log-dir, --redirects and --tee',
    torchrun: 'logs-specs',
    differs:
      'only `default`: plug-ins of torch are refused; see `--log-dir`, `--redirects`, `--tee`',
    group: 'torchrun',
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
