/**
 * `describe` and `it` for what needs something beyond Node and npm: where that is missing, stderr says so
 * and the tests count as skipped.
 */
export function needing(
  isHere: boolean,
  what: string,
): { describe: typeof describe; it: typeof it } {
  if (isHere) return { describe, it }
  console.warn(`skipped: no ${what}`)
  return { describe: describe.skip, it: it.skip }
}
