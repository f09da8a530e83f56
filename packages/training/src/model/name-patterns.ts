import { where } from '@tsrun/core'

/** Selects parameters or layers by name: a predicate, or one or more patterns such as `layers.*.bias`. */
export type NamePatterns = string | readonly string[] | ((name: string) => boolean)

export const namePatterns = where<NamePatterns>(
  (patterns) =>
    typeof patterns === 'function' || [patterns].flat().every((each) => typeof each === 'string'),
  'names or patterns of names, or a function of a name',
)

/**
 * Returns a predicate for names that match a pattern. `*` stands for one part between dots, `**` for any
 * number of parts.
 *
 * @example
 * matchName('layers.*.bias')('layers.3.bias') // true
 * matchName('**.bias')('head.layers.3.bias') // true
 */
export function matchName(pattern: string): (name: string) => boolean {
  const parts = pattern.split('.')
  return (name) => matchParts(parts, name.split('.'))
}

/** Returns a predicate for names that match any of the patterns. */
export function matchNames(patterns: NamePatterns): (name: string) => boolean {
  if (typeof patterns === 'function') return patterns
  const matchers = [patterns].flat().map(matchName)
  return (name) => matchers.some((matches) => matches(name))
}

/** Returns the patterns that match none of the names. A predicate has no patterns. */
export function unmatched(patterns: NamePatterns, names: readonly string[]): readonly string[] {
  if (typeof patterns === 'function') return []
  return [patterns].flat().filter((pattern) => !names.some(matchName(pattern)))
}

function matchParts(pattern: readonly string[], name: readonly string[]): boolean {
  const [first, ...rest] = pattern
  if (first === undefined) return name.length === 0
  if (first === '**') {
    return matchParts(rest, name) || (name.length > 0 && matchParts(pattern, name.slice(1)))
  }
  return name.length > 0 && (first === '*' || first === name[0]) && matchParts(rest, name.slice(1))
}
