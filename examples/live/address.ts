// The address of the page keeps what the user has chosen, so that a link to it shows the same:
// live.html#schedule=zb-h1&ranks=8

function settings(): URLSearchParams {
  // A fragment without settings names a section.
  return new URLSearchParams(location.hash.includes('=') ? location.hash.slice(1) : '')
}

/** A setting of the address that is one of `values`; otherwise `initial`. */
export function settingOf<T extends string>(
  name: string,
  values: Readonly<Record<T, unknown>>,
  initial: T,
): T {
  const given = settings().get(name)
  return given !== null && Object.hasOwn(values, given) ? (given as T) : initial
}

/** A setting of the address that is a whole number from `min` to `max`; otherwise `initial`. */
export function countOf(name: string, min: number, max: number, initial: number): number {
  const given = Number(settings().get(name) ?? NaN)
  return Number.isInteger(given) && given >= min && given <= max ? given : initial
}

export function keepSettings(chosen: Readonly<Record<string, string | number>>): void {
  const kept = settings()
  for (const [name, value] of Object.entries(chosen)) kept.set(name, String(value))
  history.replaceState(null, '', `#${kept}`)
}
