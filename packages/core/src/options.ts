import { distance } from 'fastest-levenshtein'
import { shown, tsrError } from './errors/tsr-error.ts'

interface RuleFacts<T> {
  readonly accepts: (value: unknown) => boolean
  readonly expected: string
  /** How a refused value is described in the error. */
  readonly describe?: (value: unknown) => string
  /** What the option is where it is left out and not required. */
  readonly fallback?: T | undefined
  readonly isRequired?: boolean
}

/**
 * What one option may be. Rules are declared once, beside the interface of the options, and say both
 * what is accepted and how the error describes it: `NAME is VALUE; expected EXPECTED`.
 */
export class Rule<T> {
  /** What follows `expected` in the sentence of an error. */
  readonly expected: string
  readonly #facts: RuleFacts<T>

  constructor(facts: RuleFacts<T>) {
    this.#facts = facts
    this.expected = facts.expected
  }

  /** The same rule for an option that may be left out. */
  optional(): Rule<T | undefined> {
    return new Rule<T | undefined>({ ...this.#facts, isRequired: false })
  }

  /** The same rule for an option that is `fallback` where it is left out. */
  default(fallback: T): Rule<T> {
    return new Rule<T>({ ...this.#facts, fallback, isRequired: false })
  }

  /**
   * @param name - how the error names the value
   * @returns `value`, or the default where it is undefined
   * @throws ERR_TSR_ARGUMENT
   */
  check(name: string, value: unknown): T {
    const { accepts, expected, describe = shown, fallback, isRequired = true } = this.#facts
    if (value === undefined && !isRequired) return fallback as T
    if (accepts(value)) return value as T
    throw tsrError('ERR_TSR_ARGUMENT', { name, value: describe(value), expected })
  }
}

/** One of the named values. */
export function choice<const T>(choices: readonly T[]): Rule<T> {
  const names = choices.map(shown)
  return new Rule({
    accepts: (value) => (choices as readonly unknown[]).includes(value),
    expected: names.length > 2 ? `one of ${names.join(', ')}` : names.join(' or '),
  })
}

/** `true` or `false`. */
export function flag(): Rule<boolean> {
  return choice([true, false])
}

/** A whole number in a range whose ends belong to it. */
export function count(range: { readonly from?: number; readonly to?: number } = {}): Rule<number> {
  const { from = 0, to = Number.MAX_SAFE_INTEGER } = range
  return new Rule({
    accepts: (value) => Number.isSafeInteger(value) && Number(value) >= from && Number(value) <= to,
    expected:
      range.to === undefined
        ? `a whole number from ${from}`
        : `a whole number from ${from} to ${to}`,
  })
}

export interface NumberRange {
  /** The least value. */
  readonly from?: number
  /** Values lie above it. */
  readonly above?: number
  /** Values lie below it; infinity is refused in any case. */
  readonly below?: number
  /** The largest value. */
  readonly to?: number
}

/** A finite number in a range. */
export function number(range: NumberRange = {}): Rule<number> {
  const { from = -Infinity, above = -Infinity, below = Infinity, to = Infinity } = range
  const bounds = [
    ...(range.from === undefined ? [] : [`>= ${from}`]),
    ...(range.above === undefined ? [] : [`> ${above}`]),
    ...(range.below === undefined ? [] : [`< ${below}`]),
    ...(range.to === undefined ? [] : [`<= ${to}`]),
  ]
  return new Rule({
    accepts: (value) =>
      typeof value === 'number' &&
      Number.isFinite(value) &&
      value >= from &&
      value > above &&
      value < below &&
      value <= to,
    expected: ['a number', bounds.join(' and ')].filter((part) => part !== '').join(' '),
  })
}

/** A number above zero. @param what - for the error, for example `a positive number of bytes` */
export function positive(what = 'a positive number'): Rule<number> {
  return where<number>((value) => typeof value === 'number' && value > 0, what)
}

/** A text that matches `pattern`. @param expected - for the error, for example `a port, as in 29500` */
export function pattern(regularExpression: RegExp, expected: string): Rule<string> {
  return where<string>(
    (value) => typeof value === 'string' && regularExpression.test(value),
    expected,
  )
}

/** A text that is not empty. */
export function text(expected = 'a text that is not empty'): Rule<string> {
  return where<string>((value) => typeof value === 'string' && value !== '', expected)
}

/** A function. @param expected - for the error, for example `a function of a batch` */
export function callback<T extends (...args: never[]) => unknown>(
  expected = 'a function',
): Rule<T> {
  return where<T>((value) => typeof value === 'function', expected)
}

/** An object that has the methods named. @param expected - for the error, for example `a store` */
export function having<T extends object>(
  methods: readonly (keyof T & string)[],
  expected: string,
): Rule<T> {
  return where<T>(
    (value) =>
      typeof value === 'object' &&
      value !== null &&
      methods.every((name) => typeof (value as Record<string, unknown>)[name] === 'function'),
    expected,
  )
}

/** Whatever else can be said in a predicate. @param describe - how the error describes the value */
export function where<T>(
  accepts: (value: unknown) => boolean,
  expected: string,
  describe?: (value: unknown) => string,
): Rule<T> {
  return new Rule({ accepts, expected, ...(describe === undefined ? {} : { describe }) })
}

/** Any value: the option is checked elsewhere, or its type says all there is to check. */
export function anything<T>(): Rule<T | undefined> {
  return new Rule<T | undefined>({ accepts: () => true, expected: 'anything', isRequired: false })
}

/** A rule for each option that exists. `T` is what the options are once they are complete. */
export type Rules<T extends object> = { readonly [Name in keyof T]-?: Rule<T[Name]> }

/** Every option with its default filled in. */
export type Complete<R> = { readonly [Name in keyof R]: R[Name] extends Rule<infer T> ? T : never }

/**
 * Declares the options of a function.
 *
 * @example
 * const readOptions = declareOptions({
 *   wire: choice(['float32', 'bfloat16']).default('float32'),
 *   bucketBytes: positive('a positive number of bytes').default(25 * MIB),
 * })
 * const { wire, bucketBytes } = readOptions(given)
 *
 * @returns reads the options that a caller has given: checks each, refuses those that do not exist
 * (ERR_TSR_ARGUMENT names the nearest), and fills in the defaults
 */
export function declareOptions<R extends Readonly<Record<string, Rule<unknown>>>>(
  rules: R,
  name = 'options',
): (given: object) => Complete<R> {
  const known = Object.keys(rules)
  return (given) => {
    refuseUnknown(given, known, name)
    const options: Record<string, unknown> = {}
    for (const option of known) {
      options[option] = rules[option]!.check(option, (given as Record<string, unknown>)[option])
    }
    return options as Complete<R>
  }
}

/**
 * @param name - of the argument
 * @throws ERR_TSR_ARGUMENT unless `options` is an object, or naming its first key that is none of
 *   `known`, and the known one that is nearest to it
 */
export function refuseUnknown(options: object, known: readonly string[], name = 'options'): void {
  if (!isObject(options)) {
    const expected = `an object with ${known.join(', ')}`
    throw tsrError('ERR_TSR_ARGUMENT', { name, value: shown(options), expected })
  }
  const unknown = Object.keys(options).find((option) => !known.includes(option))
  if (unknown === undefined) return
  const guess = nearestName(unknown, known)
  throw tsrError('ERR_TSR_ARGUMENT', {
    name,
    value: `an object with the unknown key ${shown(unknown)}`,
    expected: `only ${known.join(', ')}${guess === undefined ? '' : ` (did you mean ${guess}?)`}`,
  })
}

/**
 * The candidate that `word` was probably meant to be: the shortest that starts with it, or the one
 * with the fewest edits; undefined where none is close.
 */
export function nearestName(word: string, candidates: readonly string[]): string | undefined {
  const wanted = word.toLowerCase()
  const prefixed = candidates.filter((candidate) => candidate.toLowerCase().startsWith(wanted))
  if (wanted !== '' && prefixed.length > 0) {
    return prefixed.reduce((a, b) => (b.length < a.length ? b : a))
  }
  const limit = Math.max(1, Math.floor(word.length / 2))
  return candidates
    .map((candidate) => ({ candidate, edits: distance(wanted, candidate.toLowerCase()) }))
    .filter(({ edits }) => edits <= limit)
    .sort((a, b) => a.edits - b.edits)[0]?.candidate
}

/** False where a caller without types has given its arguments in another order. */
function isObject(options: unknown): boolean {
  return typeof options === 'object' && options !== null && !Array.isArray(options)
}
