import { infrastructureError, userError, type ErrorSection } from './definition.ts'

/** Part of the message if Node's permission model denies an access. */
const DENIED = 'API has been restricted'

export const launcherErrors = {
  ERR_TSR_USAGE: userError('{problem}', 'See tsrun --help.'),
  ERR_TSR_SCRIPT: userError(
    'Cannot run {script}: {problem}',
    'Give the path of a JavaScript or TypeScript file, relative to the current directory; or use --module for a module of a package, --no-python for any other program.',
  ),
  ERR_TSR_COMMONJS: userError(
    'Cannot run {script}: its line {line} has {syntax}, which is for ES modules, but {reason}',
    'Give the script the extension .mts (.mjs for JavaScript). Or keep .ts or .js, and run `npm pkg set type=module` in the folder of its package.json.',
  ),
  ERR_TSR_TYPESCRIPT_LOADER: userError(
    'Cannot run {script}: {reason}, and the package tsx is not installed',
    'Run `npm install --save-dev tsx` in your project, or use Node 22.18 or later.',
  ),
  ERR_TSR_STORE_ADDRESS: userError(
    'The store of the job cannot listen at {endpoint}: {reason}',
    'Start node 0 on the host that has this address. If the port is taken, give all hosts another port; a single host needs no --master-port.',
  ),
  ERR_TSR_TOKEN_MISSING: userError(
    'A job of {nnodes} nodes needs a secret that all of them share, but none is given',
    'Set the same TSRUN_TOKEN on every node (create one with `openssl rand -hex 32`), or pass a file that holds it with --token-file.',
  ),
  ERR_TSR_RENDEZVOUS_TIMEOUT: infrastructureError(
    'The nodes of the job did not come together within {seconds} s: {missing}',
    'Start tsrun on every node, and check that every node can resolve and reach the endpoint (in Kubernetes, by a headless service with publishNotReadyAddresses). Or raise --rdzv-timeout.',
  ),
  ERR_TSR_RENDEZVOUS_REFUSED: userError(
    'The nodes of the job do not match: {problem}',
    'Start the same command with the same versions on every node; only --node-rank, --nproc and --iface may differ.',
  ),
  ERR_TSR_NODE_LOST: {
    category: 'infrastructure',
    message: 'Node {node} ({host}) is gone: {reason}',
    advice: 'Look at that host and at the network between the hosts.',
    consequence: true,
  },
  ERR_TSR_LOG_DIRECTORY: userError(
    'Cannot write log files in {directory}: {reason}',
    'Choose another --log-dir.',
  ),
  ERR_TSR_FLIGHT_FOLDER: userError(
    'There are no flight records in {directory}: {problem}',
    'Give the folder of TSRUN_FLIGHT_DIR or of --log-dir, or the folder of a run or an attempt below --log-dir. Ranks write records only when something fails.',
  ),
  ERR_TSR_NO_JOB: userError(
    'You have no running job {runId} on this host (known jobs: {known})',
    'Run tsrun ps to list all jobs.',
  ),
  ERR_TSR_NO_LOGS: userError(
    'There are no log files of {run}: {problem}',
    'The output of the last five jobs is kept, unless TSRUN_KEEP_LOGS is 0. To keep all of it, start the job with --log-dir DIR, or with TSRUN_LOG_DIR=DIR in the environment.',
  ),
  ERR_TSR_SPAWN: infrastructureError(
    'Rank {rank} of {worldSize} could not be started: {reason}',
    'Check the limits of this host (ulimit -u, ulimit -n, pids.max of the cgroup, free memory), or start fewer ranks.',
  ),
  ERR_TSR_RANK_FAILED: userError(
    'Rank {rank} of {worldSize} {problem}',
    'Look at the error of that rank, which caused this one; facts.report describes the other ranks.',
  ),
  ERR_TSR_SETUP: infrastructureError(
    '{what} was not set up: {problem}',
    'Correct the problem and run the set-up again. An earlier installation is unchanged.',
  ),
  ERR_TSR_SETUP_MANIFEST: {
    category: 'user',
    message: 'The manifest of `npx tsrun setup {name}`, {path}, cannot be used: {problem}',
    advice: 'Run that command again.',
    adviseOn: ({ problem }) =>
      String(problem).includes(DENIED)
        ? 'Give Node --allow-fs-read for the folder that has this file and what it installed.'
        : undefined,
  },
} as const satisfies ErrorSection
