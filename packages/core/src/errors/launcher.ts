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
  ERR_TSR_LOG_DIRECTORY: {
    category: 'user',
    message: 'Cannot write log files in {directory}: {reason}',
    advice: 'Choose another --log-dir.',
  },
  ERR_TSR_SPAWN: {
    category: 'infrastructure',
    message: 'Rank {rank} of {worldSize} could not be started: {reason}',
    advice:
      'Check the limits of this host (ulimit -u, ulimit -n, free memory), or start fewer ranks.',
  },
} as const satisfies ErrorSection
