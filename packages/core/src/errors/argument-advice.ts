/** Advice for an argument that matches none of `mistakes`. */
export const generalAdvice = 'Fix the argument at the first line of your script in the stack trace.'

interface Mistake {
  /** Matches the text that `shown` returns. */
  readonly value: RegExp
  readonly advice: string
  /** Matches the text that says what the call expects. Without it, any text matches. */
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

/**
 * Returns advice for a wrong argument, given the text of its value (from `shown`) and what the call
 * expects.
 */
export function adviseOnArgument({
  value = '',
  expected = '',
}: Readonly<Record<string, string | number | bigint>>): string {
  const mistake = mistakes.find(
    (each) => each.value.test(String(value)) && (each.expected?.test(String(expected)) ?? true),
  )
  return mistake?.advice ?? generalAdvice
}
