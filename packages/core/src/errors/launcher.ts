import type { ErrorSection } from './definition.ts'

export const launcherErrors = {
  ERR_TSR_USAGE: {
    category: 'user',
    message: '{problem}',
    advice: 'See tsrun --help.',
  },
  ERR_TSR_SCRIPT: {
    category: 'user',
    message: 'Cannot run {script}: {problem}',
    advice: 'Give the path of a JavaScript or TypeScript file, relative to the current directory.',
  },
  ERR_TSR_TYPESCRIPT_LOADER: {
    category: 'user',
    message: 'Cannot run {script}: {reason}, and the package tsx is not installed',
    advice: 'Run `npm install --save-dev tsx` in your project, or use Node 22.18 or later.',
  },
  ERR_TSR_STORE_ADDRESS: {
    category: 'user',
    message: 'The store of the job cannot listen at {endpoint}: {reason}',
    advice: 'Choose another --master-port, or leave it out: the kernel then picks a free one.',
  },
  ERR_TSR_TOKEN_MISSING: {
    category: 'user',
    message: 'A job of {nnodes} nodes needs a secret that all of them share, and none is given',
    advice:
      'Set the same TSRUN_TOKEN on every node (made once with `openssl rand -hex 32`), or name a file that holds it with --token-file.',
  },
  ERR_TSR_RENDEZVOUS_TIMEOUT: {
    category: 'infrastructure',
    message: 'The job did not come together within {seconds} s: {missing}',
    advice:
      'Start tsrun on every node, check that the nodes reach the endpoint, or raise --rdzv-timeout.',
  },
  ERR_TSR_RENDEZVOUS_REFUSED: {
    category: 'user',
    message: 'The nodes do not fit together: {problem}',
    advice:
      'Start the same command with the same versions on every node; only --node-rank, --nproc and --iface may differ.',
  },
  ERR_TSR_NODE_LOST: {
    category: 'infrastructure',
    message: 'Node {node} ({host}) is gone: {reason}',
    advice: 'Look at that host and at the network between.',
    consequence: true,
  },
  ERR_TSR_LOG_DIRECTORY: {
    category: 'user',
    message: 'Cannot write log files in {directory}: {reason}',
    advice: 'Choose another --log-dir.',
  },
  ERR_TSR_FLIGHT_FOLDER: {
    category: 'user',
    message: 'No flight records in {directory}: {problem}',
    advice:
      'Give the folder that TSRUN_FLIGHT_DIR named, or --log-dir DIR, or DIR/RUN-ID or DIR/RUN-ID/attempt_N; ranks write records only when something fails.',
  },
  ERR_TSR_NO_JOB: {
    category: 'user',
    message: 'No job {runId} of yours runs on this host (known: {known})',
    advice: 'See tsrun ps for all of them.',
  },
  ERR_TSR_SPAWN: {
    category: 'infrastructure',
    message: 'Rank {rank} of {worldSize} could not be started: {reason}',
    advice:
      'Check the limits of this host (ulimit -u, ulimit -n, free memory), or start fewer ranks.',
  },
  ERR_TSR_RANK_FAILED: {
    category: 'user',
    message: 'Rank {rank} of {worldSize} {problem}',
    advice: 'Its error is the cause of this one; facts.report tells of the other ranks.',
  },
  ERR_TSR_SETUP: {
    category: 'infrastructure',
    message: 'TensorFlow was not set up: {problem}',
    advice: 'What was set up before, if anything, is as it was.',
  },
  ERR_TSR_SETUP_MANIFEST: {
    category: 'user',
    message: 'The record of the TensorFlow set-up, {path}, cannot be used: {problem}',
    advice: 'Run `npx tsrun setup tensorflow` again.',
  },
} as const satisfies ErrorSection
