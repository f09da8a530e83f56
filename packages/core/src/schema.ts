import { host } from '#host'
import { argumentError, shown, tsrError } from './errors/tsr-error.ts'
import { nearestName } from './nearest-name.ts'

/*
 * A schema describes the accepted values of a caller's option, a message of another process, or a file.
 * It both checks a value and describes it in an error: `NAME is VALUE; expected EXPECTED`.
 */

interface Facts {
  readonly is: (value: unknown) => boolean
  readonly expected: string
  /** Parses the text of a variable or a flag; undefined for invalid texts. */
  readonly read?: (text: string) => unknown
  readonly isOptional?: boolean
  readonly fallback?: unknown
  /** Formats a rejected value for an error. */
  readonly describe: (value: unknown) => string
}

/** The accepted values of type `T`. */
export class Schema<T> {
  /** Whether a value from another process or a file is valid. Defaults are not filled in. */
  readonly is: (value: unknown) => value is T
  /** Describes the accepted values in an error, after the word `expected`. */
  readonly expected: string
  readonly #facts: Facts

  constructor(facts: Facts) {
    const { is, expected, isOptional = false } = facts
    this.#facts = facts
    this.expected = expected
    this.is = (isOptional ? (value) => value === undefined || is(value) : is) as typeof this.is
  }

  /** Also accepts undefined. */
  optional(): Schema<T | undefined> {
    return new Schema({ ...this.#facts, isOptional: true })
  }

  /** Replaces an undefined option by `fallback`. */
  default(fallback: T): Schema<T> {
    return new Schema({ ...this.#facts, isOptional: true, fallback })
  }

  /** Accepts null as well, which JSON writes for numbers that are not finite. */
  nullable(): Schema<T | null> {
    const { is } = this
    return new Schema({ ...this.#facts, is: (value) => value === null || is(value) })
  }

  /** Accepts only values for which `holds` returns true. */
  refine(holds: (value: T) => boolean, expected = this.expected): Schema<T> {
    const { is } = this
    return new Schema({ ...this.#facts, is: (value) => is(value) && holds(value), expected })
  }

  /** Hides the value: errors show only its length. */
  secret(): Schema<T> {
    return new Schema({
      ...this.#facts,
      describe: (value) => (typeof value === 'string' ? `a text of ${value.length}` : typeof value),
    })
  }

  /**
   * Checks a value from a caller.
   *
   * @param name - names the value in the error
   * @returns `value`, or the default if it is undefined
   * @throws ERR_TSR_ARGUMENT
   */
  check(name: string, value: unknown): T {
    const { is, describe, isOptional, fallback } = this.#facts
    if (value === undefined && isOptional === true) return fallback as T
    if (!is(value)) throw argumentError(name, describe(value), this.expected)
    return value as T
  }

  /**
   * Parses the text of a variable or a flag. An undefined text means the default.
   *
   * @param refuse - creates the error to throw for an invalid text
   */
  read(written: string | undefined, refuse: (value: string, expected: string) => Error): T {
    const { is, read, describe, isOptional, fallback } = this.#facts
    if (written === undefined) {
      if (isOptional === true) return fallback as T
      throw refuse('not set', this.expected)
    }
    const value = read === undefined ? written : read(written)
    if (is(value)) return value as T
    throw refuse(describe(written), this.expected)
  }
}

/** The type of the values of a schema. */
export type Of<S> = S extends Schema<infer T> ? T : never

/**
 * Accepts the values that pass a custom check.
 * @param describe - formats the value for the error
 */
export function where<T>(
  is: (value: unknown) => boolean,
  expected: string,
  describe: (value: unknown) => string = shown,
): Schema<T> {
  return new Schema({ is, expected, describe })
}

/** Accepts any value, because it needs no check or is checked elsewhere. */
export function anything<T = unknown>(): Schema<T | undefined> {
  return where(() => true, 'anything')
}

/** Accepts any text. */
export const text = where<string>((value) => typeof value === 'string', 'a text')

/** Accepts a text that is not empty. */
export function filled(expected = 'a text that is not empty'): Schema<string> {
  return text.refine((value) => value !== '', expected)
}

/**
 * Accepts a value written as text, such as `2:4`.
 * @param read - returns undefined for invalid texts
 */
export function written<T>(
  expected: string,
  read: (text: string) => T | undefined,
  is: (value: unknown) => boolean = (value) => value !== undefined,
): Schema<T> {
  return new Schema({ is, expected, describe: shown, read })
}

/** Accepts any number, also NaN and infinity. */
export const number = written(
  'a number',
  (digits) => (digits.trim() === '' ? undefined : Number(digits)),
  (value) => typeof value === 'number',
)

/** Accepts a safe integer. */
export const integer = written<number>(
  'an integer',
  (digits) => (/^\d+$/.test(digits) ? Number(digits) : undefined),
  Number.isSafeInteger,
)

/** Accepts an integer in an inclusive range. */
export function count(
  range: { readonly from?: number; readonly to?: number } = {},
): Schema<number> {
  const { from = 0, to = Number.MAX_SAFE_INTEGER } = range
  return integer.refine(
    (value) => value >= from && value <= to,
    `a whole number from ${from}${range.to === undefined ? '' : ` to ${to}`}`,
  )
}

/** The numbers that a rule accepts. An absent bound does not limit them. */
export interface NumberRange {
  /** Inclusive lower bound. */
  readonly from?: number
  /** Exclusive lower bound. */
  readonly above?: number
  /** Exclusive upper bound. */
  readonly below?: number
  /** Inclusive upper bound. */
  readonly to?: number
}

/** Accepts a finite number in a range. */
export function finite(range: NumberRange = {}): Schema<number> {
  const { from = -Infinity, above = -Infinity, below = Infinity, to = Infinity } = range
  const bounds = Object.entries({ '>=': from, '>': above, '<': below, '<=': to })
    .filter(([, bound]) => Number.isFinite(bound))
    .map(([sign, bound]) => `${sign} ${bound}`)
  return where(
    (value) =>
      typeof value === 'number' &&
      Number.isFinite(value) &&
      value >= from &&
      value > above &&
      value < below &&
      value <= to,
    bounds.length === 0 ? 'a number' : `a number ${bounds.join(' and ')}`,
  )
}

/**
 * Accepts a number above zero, or infinity.
 * @param what - for the error, for example `a positive number of bytes`
 */
export function positive(what = 'a positive number'): Schema<number> {
  return number.refine((value) => value > 0, what)
}

/** Accepts one of the given values. */
export function choice<const T>(...choices: readonly T[]): Schema<T> {
  const names = choices.map(shown)
  return written(
    names.length > 2 ? `one of ${names.join(', ')}` : names.join(' or '),
    (word) => choices.find((each) => String(each) === word),
    (value) => choices.includes(value as T),
  )
}

/** Accepts a boolean, or as text: true or false, yes or no, on or off, 1 or 0. */
export const flag = written(
  'true or false',
  (word) => {
    if (/^(true|1|yes|on)$/i.test(word)) return true
    return /^(false|0|no|off)$/i.test(word) ? false : undefined
  },
  (value) => typeof value === 'boolean',
)

/**
 * Accepts a function.
 * @param expected - for the error, for example `a function of a batch`
 */
export function callback<T extends (...args: never[]) => unknown>(
  expected = 'a function',
): Schema<T> {
  return where((value) => typeof value === 'function', expected)
}

/**
 * Accepts an object with the given methods.
 * @param expected - for the error, for example `a store`
 */
export function having<T extends object>(
  methods: readonly (keyof T & string)[],
  expected: string,
): Schema<T> {
  return where(
    (value) =>
      typeof value === 'object' &&
      value !== null &&
      methods.every((name) => typeof (value as Record<string, unknown>)[name] === 'function'),
    expected,
  )
}

/** Accepts an array of at most `most` values that match `of`. */
export function list<T>(of: Schema<T>, most = Infinity): Schema<readonly T[]> {
  return where(
    (value) => Array.isArray(value) && value.length <= most && value.every(of.is),
    `a list, each ${of.expected}`,
  )
}

/** Accepts an object with any field names, if all its values match `of`. */
export function record<T>(of: Schema<T>): Schema<Readonly<Record<string, T>>> {
  return where(
    (value) => isObject(value) && Object.values(value).every(of.is),
    `an object, each field ${of.expected}`,
  )
}

/** Accepts a value that at least one of the schemas accepts. */
export function either<const S extends readonly Schema<unknown>[]>(
  ...of: S
): Schema<Of<S[number]>> {
  return where(
    (value) => of.some(({ is }) => is(value)),
    of.map(({ expected }) => expected).join(', or '),
  )
}

/** A schema for each field of an object. */
export type Fields = Readonly<Record<string, Schema<unknown>>>

type OptionalNames<F> = { [Name in keyof F]: undefined extends Of<F[Name]> ? Name : never }[keyof F]

/** The type of an object with the given fields. Optional fields may be missing. */
export type ObjectOf<F> = { readonly [Name in Exclude<keyof F, OptionalNames<F>>]: Of<F[Name]> } & {
  readonly [Name in OptionalNames<F>]?: Of<F[Name]>
}

/**
 * Accepts an object from another process or a file. Inherited fields are ignored.
 *
 * @param others - whether to accept unknown fields, which another version of tsrun may send
 */
export function object<F extends Fields>(
  fields: F,
  others: 'pass' | 'refuse' = 'pass',
): Schema<ObjectOf<F>> {
  const names = Object.keys(fields)
  const checks = names.map((name) => fields[name]!.is)
  const fits = (value: unknown): value is object =>
    isObject(value) &&
    names.every((name, i) => checks[i]!(Object.hasOwn(value, name) ? value[name] : undefined))
  return where(
    others === 'pass'
      ? fits
      : (value) => fits(value) && Object.keys(value).every((name) => Object.hasOwn(fields, name)),
    `an object with ${names.join(', ')}`,
  )
}

/** A schema for each option. `T` is the type of the complete options. */
export type Rules<T extends object> = { readonly [Name in keyof T]-?: Schema<T[Name]> }

/** Every option with its default filled in. */
export type Complete<F> = { readonly [Name in keyof F]: Of<F[Name]> }

/**
 * Declares the options of a function.
 *
 * @example
 * const readOptions = declareOptions({
 *   wire: choice('float32', 'bfloat16').default('float32'),
 *   bucketBytes: positive('a positive number of bytes').default(25 * MIB),
 * })
 * const { wire, bucketBytes } = readOptions(given)
 *
 * @returns a function that checks each option, rejects unknown ones (ERR_TSR_ARGUMENT names the
 *   nearest), and fills in the defaults
 */
export function declareOptions<F extends Fields>(
  fields: F,
  name = 'options',
): (given: object) => Complete<F> {
  const known = Object.keys(fields)
  return (given) => {
    refuseUnknown(given, known, name)
    const options = known.map((option) => [
      option,
      fields[option]!.check(option, (given as Record<string, unknown>)[option]),
    ])
    return Object.fromEntries(options) as Complete<F>
  }
}

/**
 * Rejects unknown options.
 * @param name - the name of the argument
 * @throws ERR_TSR_ARGUMENT if `options` is not an object, or has an unknown key; the error names
 * the nearest known key
 */
export function refuseUnknown(options: object, known: readonly string[], name = 'options'): void {
  const names = known.join(', ')
  if (!isObject(options)) throw argumentError(name, shown(options), `an object with ${names}`)
  const unknown = Object.keys(options).find((option) => !known.includes(option))
  if (unknown === undefined) return
  const guess = nearestName(unknown, known)
  const hint = guess === undefined ? '' : ` (did you mean ${guess}?)`
  throw argumentError(
    name,
    `an object with the unknown key ${shown(unknown)}`,
    `only ${names}${hint}`,
  )
}

/** Parses JSON text. Returns undefined if it is invalid or does not match the schema. */
export function parseJson<T>(json: string, of: Schema<T>): T | undefined {
  try {
    const value: unknown = JSON.parse(json)
    return of.is(value) ? value : undefined
  } catch {
    return undefined
  }
}

/** Whether a value is an object that is not an array. */
export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Variables of a process by name. */
export type Environment = Readonly<Record<string, string | undefined>>

/**
 * Reads an environment variable. An empty variable counts as not set.
 * @throws ERR_TSR_ENVIRONMENT
 */
export function readVariable<T>(variable: string, of: Schema<T>, env: Environment = host.env): T {
  return of.read(env[variable] === '' ? undefined : env[variable], (value, expected) =>
    tsrError('ERR_TSR_ENVIRONMENT', { variable, value, expected }),
  )
}
