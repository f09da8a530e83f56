import { host } from '#host'
import { coreErrors, nativeErrors } from './core.ts'
import type { ErrorCategory, ErrorDefinition, Facts } from './definition.ts'
import { distributedErrors } from './distributed.ts'
import { launcherErrors } from './launcher.ts'
import { storeErrors } from './store.ts'
import { trainingErrors } from './training.ts'
import { visibleText } from '../visible-text.ts'

/** All errors of the project by code: category, message and advice. Each package has a section. */
export const errorTable = {
  ...coreErrors,
  ...nativeErrors,
  ...storeErrors,
  ...distributedErrors,
  ...trainingErrors,
  ...launcherErrors,
} as const

/** The code of an error, such as `ERR_TSR_TIMEOUT`. `docs/errors.md` lists all codes. */
export type TsrErrorCode = keyof typeof errorTable

type Placeholders<Text extends string> = Text extends `${string}{${infer Name}}${infer Rest}`
  ? Name | Placeholders<Rest>
  : never

/** The facts that fill the message of `Code`. */
export type ErrorFacts<Code extends TsrErrorCode> = Readonly<
  Record<Placeholders<(typeof errorTable)[Code]['message']>, string | number>
>

/**
 * An error of tsrun: a message that says what happened, advice on what to do, and the facts.
 *
 * To recognize an error, compare its `code`. `instanceof` fails for errors of other threads, processes
 * and realms.
 */
export class TsrError extends Error {
  readonly code: TsrErrorCode
  readonly facts: Facts
  readonly advice: string

  constructor(code: TsrErrorCode, message: string, facts: Facts, options?: ErrorOptions) {
    super(message, options)
    this.code = code
    this.facts = facts
    this.advice = adviceOf(code, facts)
  }

  get category(): ErrorCategory {
    return definitionOf(this.code).category
  }

  /** Converts the error to plain data for another thread or process. `reviveTsrError` restores it. */
  toJSON(): SerializedTsrError {
    const { code, message, facts, stack = '' } = this
    return { code, message, facts, stack }
  }
}
Object.defineProperty(TsrError.prototype, 'name', { value: 'TsrError' })

/** A `TsrError` as plain data, for another thread or process. `reviveTsrError` restores it. */
export interface SerializedTsrError {
  readonly code: TsrErrorCode
  readonly message: string
  readonly facts: Facts
  readonly stack: string
}

/**
 * Creates the error `code` of the table and fills its message with `facts`.
 *
 * @example
 * throw tsrError('ERR_TSR_TIMEOUT', { what: 'barrier', milliseconds: 500 })
 */
export function tsrError<Code extends TsrErrorCode>(
  code: Code,
  facts: ErrorFacts<Code> & Facts,
  options?: ErrorOptions,
): TsrError {
  const { message } = definitionOf(code)
  const advice = adviceOf(code, facts)
  const filled = message.replace(/\{(\w+)\}/g, (_, name: string) =>
    factText((facts as Facts)[name]),
  )
  const error = new TsrError(code, `${filled}. ${advice} (${code})`, facts, options)
  Error.captureStackTrace(error, tsrError)
  return error
}

/**
 * Creates the error ERR_TSR_ARGUMENT for a value that a caller gave.
 *
 * @example
 * throw argumentError('rank', -1, 'at least 0')
 */
export function argumentError(
  name: string,
  value: string | number,
  expected: string,
  options?: ErrorOptions,
): TsrError {
  const error = tsrError('ERR_TSR_ARGUMENT', { name, value, expected }, options)
  Error.captureStackTrace(error, argumentError)
  return error
}

/** Maximum characters of a fact in a message: names and paths from users may be of any length. */
const LONGEST_FACT = 2000

function factText(fact: unknown) {
  const text = String(fact)
  const left = text.length - LONGEST_FACT
  if (left <= 0) return visibleText(text)
  return visibleText(`${text.slice(0, LONGEST_FACT)}… (${left} characters more)`)
}

/** Whether `value` is an error of tsrun, from any thread or realm. */
export function isTsrError(value: unknown): value is TsrError {
  const code: unknown = codeOf(value)
  return typeof code === 'string' && Object.hasOwn(errorTable, code)
}

/** Finds the first TsrError among a thrown value and its causes. */
export function tsrErrorIn(thrown: unknown): TsrError | undefined {
  const seen = new Set<unknown>()
  for (let next = thrown; !seen.has(next); next = (Object(next) as Error).cause) {
    if (isTsrError(next)) return next
    seen.add(next)
  }
  return undefined
}

/**
 * Returns how far an error is from the first cause of a failure. 0: no other rank caused it. 1: a rank left
 * early. 2: a wait for other ranks timed out. 3: another rank failed.
 */
export function distanceFromCause(thrown: unknown): number {
  const own = tsrErrorIn(thrown)
  if (own === undefined) return 0
  const { code, facts } = own
  if (definitionOf(code).consequence === true) return 3
  if (WAITS.has(code) && (facts['peers'] ?? facts['missing'] ?? '') !== '') return 2
  return LEAVES.has(code) ? 1 : 0
}

const WAITS: ReadonlySet<TsrErrorCode> = new Set([
  'ERR_TSR_OPERATION_TIMEOUT',
  'ERR_TSR_BARRIER_MISSING',
  'ERR_TSR_TIMEOUT',
])
const LEAVES: ReadonlySet<TsrErrorCode> = new Set(['ERR_TSR_PEER_LEFT', 'ERR_TSR_GROUP_LEFT'])

function adviceOf(code: TsrErrorCode, facts: Facts) {
  const { advice, adviseOn } = definitionOf(code)
  return adviseOn?.(facts) ?? advice
}

/** Uses ERR_TSR_INTERNAL for an unknown code, which another version of tsrun may send. */
function definitionOf(code: TsrErrorCode): ErrorDefinition {
  return Object.hasOwn(errorTable, code) ? errorTable[code] : errorTable.ERR_TSR_INTERNAL
}

/** Returns the message of a thrown value, which need not be an Error. */
export function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown)
}

/** The `code` of an error, such as `ENOENT`; an empty text if it has none. */
export function codeOf(thrown: unknown): string {
  return (thrown as NodeJS.ErrnoException | null | undefined)?.code ?? ''
}

/** Describes any value for an error message. Strings are quoted, which distinguishes '1' from 1. */
export function shown(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value)
  if (Array.isArray(value)) return `an array of ${value.length}`
  if (host.types.isPromise(value)) return 'a promise'
  if (typeof value === 'function') return 'a function'
  return typeof value === 'object' && value !== null ? shownObject(value) : String(value)
}

const MOST_KEYS = 5

function shownObject(value: object) {
  // Ignore an own field named `constructor`, which an object from a file may have.
  const kind: unknown = Object.hasOwn(value, 'constructor') ? Object : value.constructor
  if (typeof kind === 'function' && kind !== Object) return `an instance of ${kind.name}`
  const keys = Object.keys(value)
  const some = keys.length > MOST_KEYS ? [...keys.slice(0, MOST_KEYS), '...'] : keys
  return some.length === 0 ? 'an empty object' : `an object with ${some.join(', ')}`
}
