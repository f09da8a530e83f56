import type { Span, SpanFileHeader } from '@tsrun/distributed/record'
import type { SpanFileReader } from './span-file-reader.ts'

/** Maximum operations of a rank that are compared; more add little precision. */
const MOST_OPERATIONS = 20_000

/** One rank in an operation of several ranks. */
interface Part {
  readonly host: string
  readonly start: number
  readonly end: number
  /** True if other ranks cannot end before this rank begins. */
  readonly isNeeded: boolean
  /** True if this rank cannot end before the needed ranks begin. */
  readonly needs: boolean
}

/** Identifies a host, whose ranks share a clock. */
export function hostOf({ node, host }: SpanFileHeader): string {
  return `${host} ${node}`
}

/**
 * Returns the offset in milliseconds that converts each host's times to the clock of the first file's
 * host. A rank cannot end an operation before the ranks that it needs have begun. These limits bound the
 * difference of two clocks from both sides. The result is the middle between the closest bounds, which is
 * exact if messages take equally long in both directions. Hosts without common operations are aligned by
 * their wall clocks.
 */
export function alignClocks(files: readonly SpanFileReader[]): Map<string, number> {
  const offsets = new Map<string, number>()
  const hosts = new Set(files.map(({ header }) => hostOf(header)))
  const [own] = hosts
  if (own !== undefined) offsets.set(own, 0)
  if (hosts.size < 2) return offsets
  const bounds = boundsBetween(partsOf(files))
  // The loop also visits the hosts that it adds, so a third host can connect two others.
  for (const [known, offset] of offsets) {
    for (const host of hosts) {
      const [forth, back] = [bounds.get(`${known}>${host}`), bounds.get(`${host}>${known}`)]
      if (offsets.has(host) || forth === undefined || back === undefined) continue
      offsets.set(host, offset - (forth - back) / 2)
    }
  }
  const { time, monotonic } = files[0]!.header
  for (const { header } of files) {
    const host = hostOf(header)
    if (!offsets.has(host)) offsets.set(host, header.time - header.monotonic - (time - monotonic))
  }
  return offsets
}

function partsOf(files: readonly SpanFileReader[]) {
  const operations = new Map<string, Part[]>()
  for (const file of files) {
    const host = hostOf(file.header)
    const seen = new Set<string>()
    for (const span of file.spans()) {
      const key = operationKey(span, file.header.restartCount)
      // A rank that rejoins restarts its sequence numbers.
      if (key === undefined || seen.has(key)) continue
      if (seen.size === MOST_OPERATIONS) break
      seen.add(key)
      const { kind, start, end, joint } = span
      const [isNeeded, needs] = [kind === 'send' || joint === 1, kind === 'recv' || joint === 1]
      const part = { host, start, end, isNeeded, needs }
      const parts = operations.get(key) ?? []
      operations.set(key, parts)
      parts.push(part)
    }
  }
  return [...operations.values()]
}

/** Returns the least time from a start on one host to an end on another, for each ordered pair of hosts. */
function boundsBetween(operations: readonly (readonly Part[])[]) {
  const bounds = new Map<string, number>()
  for (const parts of operations) {
    // For each host: the latest start of a needed rank, and the earliest end of a rank that needs others.
    const [begins, ends] = [new Map<string, number>(), new Map<string, number>()]
    for (const { host, start, end, isNeeded, needs } of parts) {
      if (isNeeded) begins.set(host, Math.max(begins.get(host) ?? -Infinity, start))
      if (needs) ends.set(host, Math.min(ends.get(host) ?? Infinity, end))
    }
    for (const [from, start] of begins) {
      for (const [to, end] of ends) {
        if (from === to) continue
        const between = `${from}>${to}`
        bounds.set(between, Math.min(bounds.get(between) ?? Infinity, end - start))
      }
    }
  }
  return bounds
}

/**
 * A key that is equal for all parts of a collective, or for a send and its receive. Undefined for other
 * spans.
 *
 * @param attempt - distinguishes attempts, because each restarts the numbers of groups and messages
 */
export function operationKey(span: Span, attempt: number): string | undefined {
  const { kind, rank, peer, group, sequence, tag } = span
  if (group === undefined || sequence === undefined) return undefined
  if (kind === 'collective') return `${attempt} ${group} ${sequence}`
  if (peer === undefined || tag === undefined) return undefined
  if (kind === 'send') return `${attempt} ${group} ${rank}>${peer} ${tag} ${sequence}`
  return kind === 'recv' ? `${attempt} ${group} ${peer}>${rank} ${tag} ${sequence}` : undefined
}
