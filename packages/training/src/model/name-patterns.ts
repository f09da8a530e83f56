/** Selects parameters by name: a predicate, or one or more patterns of {@link matchName}. */
export type NamePatterns = string | readonly string[] | ((name: string) => boolean)

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
  const matchers = (typeof patterns === 'string' ? [patterns] : patterns).map(matchName)
  return (name) => matchers.some((matches) => matches(name))
}

function matchParts(pattern: readonly string[], name: readonly string[]): boolean {
  const [first, ...rest] = pattern
  if (first === undefined) return name.length === 0
  if (first === '**') {
    return matchParts(rest, name) || (name.length > 0 && matchParts(pattern, name.slice(1)))
  }
  return name.length > 0 && (first === '*' || first === name[0]) && matchParts(rest, name.slice(1))
}
