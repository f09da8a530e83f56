/** Ports `first` to `last`, both included. */
export interface PortRange {
  readonly first: number
  readonly last: number
}

/** Reads `29600-29699`, or one port; undefined when it is no such range. */
export function parsePortRange(text: string): PortRange | undefined {
  const match = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(text.trim())
  if (match === null) return undefined
  const first = Number(match[1])
  const last = Number(match[2] ?? match[1])
  return first >= 1 && first <= last && last <= 65_535 ? { first, last } : undefined
}
