/*
 * Checks of what comes from another process or a file, before anything is done with it: a decoder says
 * what a value is, and these whether it is what our code expects. A check of an object lets more fields
 * pass, as other versions may have them; the fields that are named have to fit.
 */

/** Whether a value has the type `T`. */
export type Shape<T> = (value: unknown) => value is T

function shape<T>(fits: (value: unknown) => boolean): Shape<T> {
  return fits as Shape<T>
}

export const isText = shape<string>((value) => typeof value === 'string')
export const isFlag = shape<boolean>((value) => typeof value === 'boolean')
/** Any number, as for a time. */
export const isNumber = shape<number>((value) => typeof value === 'number')
/** An integer that is exact. */
export const isInteger = shape<number>(Number.isSafeInteger)
/** A count or a position: an integer of 0 or more. */
export const isCount = shape<number>((value) => isInteger(value) && value >= 0)
/** Anything, where it is only shown or handed on. */
export const isAnything = shape<unknown>(() => true)

/** One of these values. */
export function oneOf<const T extends string | number | boolean | null>(
  ...values: readonly T[]
): Shape<T> {
  return shape((value) => values.includes(value as T))
}

/** That, or absent. */
export function optional<T>(of: Shape<T>): Shape<T | undefined> {
  return shape((value) => value === undefined || of(value))
}

/** That, or null, as JSON has numbers that are not finite. */
export function nullable<T>(of: Shape<T>): Shape<T | null> {
  return shape((value) => value === null || of(value))
}

/** An array of these, at most `most`. */
export function listOf<T>(of: Shape<T>, most = Infinity): Shape<readonly T[]> {
  return shape((value) => Array.isArray(value) && value.length <= most && value.every(of))
}

/** An object that is not an array. */
export const isObject = shape<Readonly<Record<string, unknown>>>(
  (value) => typeof value === 'object' && value !== null && !Array.isArray(value),
)

/** An object whose fields, whatever their names, are these. */
export function recordOf<T>(of: Shape<T>): Shape<Readonly<Record<string, T>>> {
  return shape((value) => isObject(value) && Object.values(value).every(of))
}

/** An object with these fields. Fields of its prototype do not count. */
export function objectOf<T extends object>(fields: {
  readonly [Name in keyof T]-?: object extends Pick<T, Name>
    ? Shape<T[Name] | undefined>
    : Shape<T[Name]>
}): Shape<T> {
  const checks = Object.entries<Shape<unknown>>(fields)
  return shape(
    (value) =>
      isObject(value) &&
      checks.every(([name, of]) => of(Object.hasOwn(value, name) ? value[name] : undefined)),
  )
}

/** What one of these is. */
export function anyOf<T>(...shapes: readonly Shape<T>[]): Shape<T> {
  return shape((value) => shapes.some((of) => of(value)))
}

/** The value of a JSON text if it has this shape, and undefined for any other text. */
export function parseJson<T>(text: string, of: Shape<T>): T | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return of(value) ? value : undefined
  } catch {
    return undefined
  }
}
