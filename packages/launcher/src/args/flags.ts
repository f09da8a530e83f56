import { filled, flag } from '@tsrun/core'
import type { Flag, Flags, ValuesOf } from './flag.ts'
import {
  binding,
  endpoint,
  HIGHEST_PORT,
  hosts,
  input,
  integerFrom,
  jobTimeout,
  logFormat,
  metricsAddress,
  numaBinding,
  port,
  portRange,
  processes,
  quantity,
  rankList,
  rankNumber,
  signals,
  stepRange,
  streams,
  time,
  timeout,
  words,
} from './readers.ts'
import { torchrunFlags } from './torchrun-flags.ts'

/** All flags in the order of the help page. Each may be spelled with dashes or underscores. */
export const flags = {
  nproc: {
    section: 'Ranks and hosts:',
    reads: processes,
    aliases: ['nproc-per-node'],
    value: 'N|auto|gpu|cpu',
    description:
      'how many ranks to start; gpu: one for each GPU; cpu: one for each core that it may use; auto: gpu where the ' +
      'backend uses GPUs, else cpu',
    fallback: '1',
    torchrun: 'nproc-per-node',
    differs: '`xpu` and other accelerators of torch are refused',
  },
  nnodes: {
    reads: hosts,
    value: 'N|MIN:MAX',
    description:
      'how many hosts run the job, on each of which tsrun is started once; with a range, hosts may join ' +
      'and leave while it runs',
    fallback: '1',
    torchrun: 'nnodes',
  },
  'node-rank': {
    value: 'K',
    description:
      'the number of this host, from 0; without it, the host that --rdzv-endpoint names is node 0, and ' +
      'the others are numbered as they arrive',
    torchrun: 'node-rank',
    differs: 'a given number always counts; torchrun ignores it unless the backend is `static`',
  },
  'rdzv-endpoint': {
    reads: endpoint,
    off: '',
    value: 'HOST[:PORT]',
    description:
      'name or address of node 0, and the port of its store (29500); the same on all hosts',
    torchrun: 'rdzv-endpoint',
    differs: 'without a port it is 29500, or 29400 with `--rdzv-backend c10d`',
  },
  'rdzv-timeout': {
    reads: timeout,
    value: 'SECONDS',
    description: 'how many seconds the hosts wait for each other at the start',
    fallback: '600',
  },
  role: {
    reads: filled('a name'),
    value: 'NAME',
    description: 'the role of the ranks, which they get as ROLE_NAME',
    fallback: 'default',
    torchrun: 'role',
  },
  'virtual-local-rank': {
    reads: flag,
    description: 'LOCAL_RANK is 0 in each rank, which sees one GPU only',
    fallback: 'false',
    torchrun: 'virtual-local-rank',
    differs:
      'each rank sees [one GPU](tensorflow.md#what-the-launcher-gives-each-rank) without this flag as well',
  },
  'numa-binding': {
    reads: numaBinding,
    value: 'node|socket|exclusive|core-complex',
    description:
      'bind each rank to cores: those of a NUMA node, of a socket, a share of a node of its own, or ' +
      'cores with one last-level cache',
    torchrun: 'numa-binding',
    differs: 'ranks without a GPU are spread over the nodes; torch needs GPUs',
  },
  bind: {
    reads: binding,
    value: 'core|numa|none',
    description:
      'bind each rank to cores that this process may use: to its own share of them, or to those of a ' +
      'NUMA node, as --numa-binding node does; none: to no cores',
  },
  'token-file': {
    section: 'Network:',
    value: 'FILE',
    description: 'a file with the secret that the hosts share, instead of TSRUN_TOKEN',
  },
  tls: {
    reads: flag,
    description:
      'encrypt what goes over the network: the store, and messages between ranks that share no memory; ' +
      'the same on all hosts',
    fallback: 'false',
  },
  'tls-cert': {
    value: 'FILE',
    description:
      'the certificate of this host for the store, in PEM; it implies --tls. Without one, the keys come from the token',
  },
  'tls-key': {
    value: 'FILE',
    description: 'the key of --tls-cert',
  },
  'tls-ca': {
    value: 'FILE',
    description:
      'the authority that has signed the certificates of the other hosts; default: --tls-cert itself',
  },
  iface: {
    value: 'NAME|ADDRESS',
    description: 'the network interface at which other hosts reach the ranks of this one',
  },
  'port-range': {
    reads: portRange,
    value: 'A-B',
    description: 'the ports on which the ranks of this host listen, for firewalls; default: any',
  },
  'host-timeout': {
    reads: timeout,
    value: 'SECONDS',
    description: 'the job fails when a host has been silent for this many seconds',
    fallback: '30',
  },
  'master-addr': {
    reads: filled('a host name or address'),
    value: 'HOST',
    description: 'the address of the store; with --master-port the same as --rdzv-endpoint',
    fallback: '127.0.0.1',
    torchrun: 'master-addr',
  },
  'master-port': {
    reads: integerFrom(0, HIGHEST_PORT),
    value: 'PORT',
    description: 'the port of the store; 0: any free one, or 29500 with several hosts',
    fallback: '0',
    torchrun: 'master-port',
    differs: 'on one host the kernel picks a free port when none is given',
  },
  'max-restarts': {
    section: 'Failures and the end of the job:',
    reads: integerFrom(0, 1_000_000),
    value: 'N',
    description: 'how often all ranks are started again after a failure',
    fallback: '0',
    torchrun: 'max-restarts',
    differs: 'restarts are counted for the whole job, not per host',
  },
  grace: {
    reads: time,
    aliases: ['shutdown-timeout'],
    value: 'SECONDS',
    description: 'seconds between SIGTERM and SIGKILL when ranks are stopped',
    fallback: '10',
    torchrun: 'shutdown-timeout',
    differs: '10 s by default, not 30',
  },
  'signals-to-handle': {
    reads: signals,
    value: 'LIST',
    description: 'the signals to the launcher that stop the job',
    fallback: 'SIGTERM,SIGINT,SIGHUP,SIGQUIT',
    torchrun: 'signals-to-handle',
  },
  'job-timeout': {
    reads: jobTimeout,
    value: 'SECONDS',
    description:
      'end the job after this time with exit code 124, and show the JavaScript stacks of its ranks first',
  },
  'on-failure': {
    value: 'COMMAND|URL',
    description:
      'if the job fails, run this command of the shell with the report as its input, or post JSON to this URL',
  },
  chaos: {
    value: 'FILE',
    description:
      'inject the faults that FILE (YAML or JSON) lists, to see whether the job withstands them',
  },
  'log-dir': {
    section: 'Output:',
    value: 'DIR',
    description: 'also write the output to DIR/RUN-ID/attempt_N/RANK/stdout.log and stderr.log',
    torchrun: 'log-dir',
    differs:
      '`DIR/RUN-ID/attempt_N/RANK/stdout.log` and `stderr.log`: folders have ranks of the job; all output is written when neither `--redirects` nor `--tee` is given',
  },
  'log-max-size': {
    reads: quantity('bytes'),
    value: 'SIZE',
    description:
      'rotate the log files of a rank when they have this size, for example 64M; the files before them are kept in RANK/older',
  },
  'log-format': {
    reads: logFormat,
    value: 'pretty|json|raw',
    description: 'pretty: with [rank 3] prefixes; json: one object per line; raw: unchanged lines',
    fallback: 'pretty',
  },
  'log-prefix': {
    value: 'TEMPLATE',
    description:
      'the prefix of the lines of a rank in the format pretty, for example "[{role}{rank}:{host}] {time}"; ' +
      'there are {rank}, {local_rank}, {role}, {host}, {node}, {pid}, {time}, {elapsed}, {stream}, ' +
      '{generation}',
  },
  ranks: {
    reads: rankList,
    off: '',
    value: 'LIST',
    description: 'show only the output of these ranks of the job, for example 0,2-3',
  },
  'local-ranks-filter': {
    reads: rankList,
    off: '',
    value: 'LIST',
    description: 'show only the output of these ranks of each host, for example 0',
    torchrun: 'local-ranks-filter',
  },
  redirects: {
    reads: streams,
    off: '0',
    aliases: ['r'],
    value: '0|1|2|3|MAP',
    description:
      'write output to files of --log-dir and do not show it: 1 stdout, 2 stderr, 3 both, or by local ' +
      'rank, as in 0:1,1:3',
    torchrun: 'redirects',
    differs: 'without `--log-dir`, the files are in a new folder of the temporary directory',
  },
  tee: {
    reads: streams,
    off: '0',
    aliases: ['t'],
    value: '0|1|2|3|MAP',
    description: 'the same, but show the output as well',
    torchrun: 'tee',
    differs: 'the prefix of a line is `[rank 3]`, with and without this flag',
  },
  'duplicate-stdout-filters': {
    value: 'TEXTS',
    description:
      'also write the lines of stdout that contain one of these texts, separated by commas, of all ' +
      'ranks to filtered_stdout.log',
    torchrun: 'duplicate-stdout-filters',
  },
  'duplicate-stderr-filters': {
    value: 'TEXTS',
    description: 'the same for stderr and filtered_stderr.log',
    torchrun: 'duplicate-stderr-filters',
  },
  summary: {
    reads: flag,
    description: 'show time, CPU time and peak memory of each rank at the end',
    fallback: 'false',
  },
  'event-log': {
    value: 'FILE',
    description:
      'append what happens to the job to FILE, one JSON object per line; the ranks are those of this host',
  },
  trace: {
    section: 'What ranks do:',
    off: '',
    value: 'DIR',
    description:
      'write what each rank does, and when, into this folder, and at the end DIR/trace.json, which Perfetto ' +
      'opens; tsrun trace DIR summarizes it',
  },
  'trace-steps': {
    reads: stepRange,
    value: 'A:B',
    description: 'trace the steps from A to B alone, as programs report them; A: has no end',
  },
  'trace-max-size': {
    reads: quantity('bytes'),
    value: 'SIZE',
    description: 'how much each rank writes with --trace; the newest steps are kept',
    fallback: '1GiB',
  },
  dashboard: {
    reads: port,
    value: 'PORT',
    description:
      'serve a page that shows the ranks of this host live, on 127.0.0.1 at this port (0: any free one); ' +
      'tsrun prints its address',
  },
  'dashboard-linger': {
    reads: time,
    value: 'SECONDS',
    description:
      'keep the page open for this time after the end of the job, or until Ctrl-C; by default until Ctrl-C ' +
      'after a failure, if the standard input is a terminal, and not at all otherwise',
  },
  metrics: {
    reads: metricsAddress,
    value: '[HOST:]PORT',
    description:
      'serve metrics of the ranks of this host to Prometheus, at /metrics of this port (0: any free one) ' +
      'of 127.0.0.1, or of HOST; tsrun prints the address',
  },
  module: {
    section: 'The program:',
    reads: flag,
    aliases: ['m'],
    description: 'run a module of a package, named as in import, instead of a file',
    fallback: 'false',
    torchrun: 'module',
    differs: 'the module is resolved as `import` does from the working directory',
  },
  'no-python': {
    reads: flag,
    description: 'run any program instead of a script: bash, Python, a binary',
    fallback: 'false',
    torchrun: 'no-python',
  },
  stdin: {
    reads: input,
    value: 'K|all|none',
    description: 'the rank of the job that gets the standard input of tsrun, or all, or none',
    fallback: '0',
  },
  'node-args': {
    reads: words,
    value: 'ARGS',
    description:
      'more arguments of Node for the ranks, in one text, as in --node-args="--expose-gc --max-old-space-size=8192"',
  },
  inspect: {
    value: '[HOST:]PORT|auto',
    description:
      'each rank listens for a debugger at 127.0.0.1 or HOST: at PORT + its local rank, or at any free port',
  },
  'inspect-rank': {
    reads: rankNumber,
    value: 'K',
    description:
      'only this rank listens for a debugger, at port 9229 or that of --inspect, and waits for it before ' +
      'the first line of the script',
  },
  'cpu-prof': {
    reads: flag,
    description: 'write a CPU profile of each rank into the folder of its log files',
    fallback: 'false',
  },
  'heap-prof': {
    reads: flag,
    description: 'write a heap profile of each rank into the folder of its log files',
    fallback: 'false',
  },
  detach: {
    reads: flag,
    description:
      'run the job in the background, and print its id and how to follow and stop it; the output goes to log files',
    fallback: 'false',
  },
  'dry-run': {
    reads: flag,
    description: 'print the environment and command of each rank, and start nothing',
    fallback: 'false',
  },
  ...torchrunFlags,
} satisfies Flags

export type FlagName = keyof typeof flags

export type Values = ValuesOf<typeof flags>

/** The entries of `flags`, all with the type `Flag`. */
export const flagTable: readonly (Flag & { readonly name: FlagName })[] = Object.entries<
  Omit<Flag, 'name'>
>(flags).map(([name, facts]) => ({ name: name as FlagName, ...facts }))

/** The flags that are set on the command line. */
export type FlagValues = Partial<Record<FlagName, string>>
