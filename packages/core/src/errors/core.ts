import { infrastructureError, userError, type ErrorSection, type Facts } from './definition.ts'

interface Mistake {
  /** Matches the description of the wrong value in the error. */
  readonly value: RegExp
  readonly advice: string
  /** Matches the description of the expected value. Default: matches any description. */
  readonly expected?: RegExp
}

/** Common mistakes in arguments. */
const mistakes: readonly Mistake[] = [
  {
    value: /^a promise$/,
    advice: '`await` it: the call needs the value that the promise resolves to.',
  },
  {
    value: /^an instance of \w*Work$/,
    advice: '`await` it: this is an operation in progress, which resolves to its result.',
  },
  { value: /^a function$/, advice: 'Call the function, and pass what it returns.' },
  {
    value: /^an instance of (?:Tensor|Variable)$/,
    advice: 'Pass the values of the tensor: `await tensor.data()`.',
    expected: /array|buffer/i,
  },
  {
    value: /^an array of /,
    advice: 'Pass a typed array, for example `Float32Array.from(values)`.',
    expected: /typed array|Float32Array|buffer/i,
  },
  {
    value: /^"\s*-?\d[\d.e+-]*\s*"$/,
    advice: 'This is a string: convert it with `Number()`, like values of `process.env`.',
    expected: /number|integer|count|milliseconds|seconds|bytes|rank|above|at least|from -?\d/i,
  },
  {
    value: /^NaN$/,
    advice: 'Look where the value is computed: `Number()` of a variable that is not set is NaN.',
  },
  {
    value: /^undefined$/,
    advice: 'Pass a value: the variable or property that is passed is undefined.',
  },
]

function adviseOnArgument({ value = '', expected = '' }: Facts) {
  const mistake = mistakes.find(
    (each) => each.value.test(String(value)) && (each.expected?.test(String(expected)) ?? true),
  )
  return mistake?.advice
}

export const coreErrors = {
  ERR_TSR_ENVIRONMENT: userError(
    'The environment variable {variable} is {value}; expected {expected}',
    'Start the script with tsrun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT yourself.',
  ),
  ERR_TSR_ARGUMENT: {
    category: 'user',
    message: '{name} is {value}; expected {expected}',
    advice: 'Fix the argument at the first line of your script in the stack trace.',
    adviseOn: adviseOnArgument,
  },
  ERR_TSR_TIMEOUT: infrastructureError(
    '{what} did not finish within {milliseconds} ms',
    'Look for the rank or host that is late, or set a longer timeout.',
  ),
  ERR_TSR_ABORTED: {
    category: 'user',
    message: '{what} was aborted by its AbortSignal',
    advice: 'Ignore this error if the abort was intended.',
    consequence: true,
  },
  ERR_TSR_MESSAGE_TOO_LARGE: userError(
    'A message of {bytes} bytes exceeds the limit of {limit} bytes',
    'Send bulk data as typed arrays, or split the message.',
  ),
  ERR_TSR_MESSAGE_INVALID: infrastructureError(
    'A message of {bytes} bytes could not be decoded: {reason}',
    'Check that every process of the job runs the same version of tsrun.',
  ),
  ERR_TSR_PACKAGE_MISSING: userError(
    '{what} needs a package that is not installed: `npm install {package}`',
    'Run that command in the folder of your script.',
  ),
  ERR_TSR_BUILT_FILE: userError(
    'A file of tsrun is missing: {path}',
    "If your program is a bundle, keep @tsrun/* outside of it (esbuild '--external:@tsrun/*'). Otherwise install the packages again.",
  ),
  ERR_TSR_INTERNAL: {
    category: 'internal',
    message: 'Internal error: {what}',
    advice: 'Please report this as a bug in tsrun, with the whole message.',
  },
} as const satisfies ErrorSection

export const nativeErrors = {
  ERR_TSR_NATIVE_UNAVAILABLE: infrastructureError(
    'The native bindings are not available: {reason}',
    "Install the optional package koffi, or choose the transport 'node'.",
  ),
  ERR_TSR_SYSTEM_CALL: {
    category: 'infrastructure',
    message: '{call} failed: {errno} ({description})',
    advice: 'Look up the error number in the manual page of the call.',
    adviseOn: ({ description }) =>
      description === 'ENOMEM'
        ? 'Raise `ulimit -v`, set a smaller TSRUN_ARENA, or free memory.'
        : undefined,
  },
} as const satisfies ErrorSection
