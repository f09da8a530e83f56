/** Advice for an argument that matches none of `mistakes`. */
export const generalAdvice = 'Fix the argument at the first line of your script in the stack trace.'

/**
 * Common mistakes in arguments, with advice for each. `value` matches the text that `shown`
 * returns, and `expected` the text that says what the call expects. By default, it matches any text.
 */
const mistakes: readonly (readonly [value: RegExp, advice: string, expected?: RegExp])[] = [
  [/^a promise$/, '`await` it: the call needs the value that the promise resolves to.'],
  [
    /^an instance of \w*Work$/,
    '`await` it: this is an operation in progress, which resolves to its result.',
  ],
  [/^a function$/, 'Call the function, and pass what it returns.'],
  [
    /^an instance of (?:Tensor|Variable)$/,
    'Pass the values of the tensor: `await tensor.data()`.',
    /array|buffer/i,
  ],
  [
    /^an array of /,
    'Pass a typed array, for example `Float32Array.from(values)`.',
    /typed array|Float32Array|buffer/i,
  ],
  [
    /^"\s*-?\d[\d.e+-]*\s*"$/,
    'This is a string: convert it with `Number()`, like values of `process.env`.',
    /number|integer|count|milliseconds|seconds|bytes|rank|above|at least|from -?\d/i,
  ],
  [/^NaN$/, 'Look where the value is computed: `Number()` of a variable that is not set is NaN.'],
  [/^undefined$/, 'Pass a value: the variable or property that is passed is undefined.'],
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
    ([given, , wanted]) => given.test(String(value)) && (wanted?.test(String(expected)) ?? true),
  )
  return mistake?.[1] ?? generalAdvice
}
