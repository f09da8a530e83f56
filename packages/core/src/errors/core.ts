import type { ErrorSection } from './definition.ts'

export const coreErrors = {
  ERR_TSR_ENVIRONMENT: {
    category: 'user',
    message: 'The environment variable {variable} is {value}; expected {expected}',
    advice:
      'Start the script with tsrun, or set all of RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.',
  },
  ERR_TSR_ARGUMENT: {
    category: 'user',
    message: '{name} is {value}; expected {expected}',
    advice: 'Correct the argument.',
  },
  ERR_TSR_TIMEOUT: {
    category: 'infrastructure',
    message: '{what} did not finish within {milliseconds} ms',
    advice: 'Look for the rank or host that is late, or give a longer timeout.',
  },
  ERR_TSR_ABORTED: {
    category: 'user',
    message: '{what} was aborted by its AbortSignal',
    advice: 'Nothing to do if the abort was meant.',
    consequence: true,
  },
  ERR_TSR_MESSAGE_TOO_LARGE: {
    category: 'user',
    message: 'A message of {bytes} bytes exceeds the limit of {limit} bytes',
    advice: 'Send bulk data as typed arrays, or split it.',
  },
  ERR_TSR_MESSAGE_INVALID: {
    category: 'infrastructure',
    message: 'A message of {bytes} bytes could not be decoded: {reason}',
    advice: 'Check that every process of the job runs the same version of tsrun.',
  },
  ERR_TSR_INTERNAL: {
    category: 'internal',
    message: 'Internal error: {what}',
    advice: 'This is a bug in tsrun; please report it with this message.',
  },
} as const satisfies ErrorSection
