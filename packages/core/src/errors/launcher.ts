import type { ErrorSection } from './definition.ts'

/** Part of the message if Node's permission model denies an access. */
const DENIED = 'API has been restricted'

export const launcherErrors = {
  ERR_TSR_USAGE: {
    category: 'user',
    message: '{problem}',
    advice: 'See tsrun --help.',
  },
  ERR_TSR_SCRIPT: {
    category: 'user',
    message: 'Cannot run {script}: {problem}',
    advice:
      'Give the path of a JavaScript or TypeScript file, relative to the current directory; or use --module for a module of a package, --no-python for any other program.',
  },
  ERR_TSR_COMMONJS: {
    category: 'user',
    message:
      'Cannot run {script}: its line {line} has {syntax}, which is for ES modules, but {reason}',
    advice:
      'Give the script the extension .mts (.mjs for JavaScript). Or keep .ts or .js, and run `npm pkg set type=module` in the folder of its package.json.',
  },
  ERR_TSR_TYPESCRIPT_LOADER: {
    category: 'user',
    message: 'Cannot run {script}: {reason}, and the package tsx is not installed',
    advice: 'Run `npm install --save-dev tsx` in your project, or use Node 22.18 or later.',
  },
  ERR_TSR_STORE_ADDRESS: {
    category: 'user',
    message: 'The store of the job cannot listen at {endpoint}: {reason}',
    advice:
      'Start node 0 on the host that has this address. If the port is taken, give all hosts another port; a single host needs no --master-port.',
  },
  ERR_TSR_TOKEN_MISSING: {
    category: 'user',
    message: 'A job of {nnodes} nodes needs a secret that all of them share, but none is given',
    advice:
      'Set the same TSRUN_TOKEN on every node (create one with `openssl rand -hex 32`), or pass a file that holds it with --token-file.',
  },
  ERR_TSR_RENDEZVOUS_TIMEOUT: {
    category: 'infrastructure',
    message: 'The nodes of the job did not come together within {seconds} s: {missing}',
    advice:
      'Start tsrun on every node, and check that every node can resolve and reach the endpoint (in Kubernetes, by a headless service with publishNotReadyAddresses). Or raise --rdzv-timeout.',
  },
  ERR_TSR_RENDEZVOUS_REFUSED: {
    category: 'user',
    message: 'The nodes of the job do not match: {problem}',
    advice:
      'Start the same command with the same versions on every node; only --node-rank, --nproc and --iface may differ.',
  },
  ERR_TSR_NODE_LOST: {
    category: 'infrastructure',
    message: 'Node {node} ({host}) is gone: {reason}',
    advice: 'Look at that host and at the network between the hosts.',
    consequence: true,
  },
  ERR_TSR_LOG_DIRECTORY: {
    category: 'user',
    message: 'Cannot write log files in {directory}: {reason}',
    advice: 'Choose another --log-dir.',
  },
  ERR_TSR_FLIGHT_FOLDER: {
    category: 'user',
    message: 'There are no flight records in {directory}: {problem}',
    advice:
      'Give the folder of TSRUN_FLIGHT_DIR or of --log-dir, or the folder of a run or an attempt below --log-dir. Ranks write records only when something fails.',
  },
  ERR_TSR_NO_JOB: {
    category: 'user',
    message: 'You have no running job {runId} on this host (known jobs: {known})',
    advice: 'Run tsrun ps to list all jobs.',
  },
  ERR_TSR_NO_LOGS: {
    category: 'user',
    message: 'There are no log files of {run}: {problem}',
    advice:
      'The output of the last five jobs is kept, unless TSRUN_KEEP_LOGS is 0. To keep all of it, start the job with --log-dir DIR, or with TSRUN_LOG_DIR=DIR in the environment.',
  },
  ERR_TSR_SPAWN: {
    category: 'infrastructure',
    message: 'Rank {rank} of {worldSize} could not be started: {reason}',
    advice:
      'Check the limits of this host (ulimit -u, ulimit -n, pids.max of the cgroup, free memory), or start fewer ranks.',
  },
  ERR_TSR_RANK_FAILED: {
    category: 'user',
    message: 'Rank {rank} of {worldSize} {problem}',
    advice:
      'Look at the error of that rank, which caused this one; facts.report describes the other ranks.',
  },
  ERR_TSR_SETUP: {
    category: 'infrastructure',
    message: '{what} was not set up: {problem}',
    advice: 'Correct the problem and run the set-up again. An earlier installation is unchanged.',
  },
  ERR_TSR_SETUP_MANIFEST: {
    category: 'user',
    message: 'The manifest of `npx tsrun setup {name}`, {path}, cannot be used: {problem}',
    advice: 'Run that command again.',
    adviseOn: ({ problem }): string =>
      String(problem).includes(DENIED)
        ? 'Give Node --allow-fs-read for the folder that has this file and what it installed.'
        : 'Run that command again.',
  },
} as const satisfies ErrorSection
