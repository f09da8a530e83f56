import type { FlightDump, FlightEntry } from '@tsrun/distributed/record'
import {
  inBrackets,
  nameMessage,
  type FlightFinding,
  type MessageFinding,
  type RankPlace,
} from './flight-findings.ts'

/** A group with the collectives of its members. */
interface MergedGroup {
  readonly id: number
  readonly name: string
  readonly ranks: readonly number[]
  /** Collectives by sequence number, then by rank. Rejected collectives are omitted. */
  readonly collectives: Map<number, Map<number, FlightEntry>>
}

const TIMEOUT = 'ERR_TSR_OPERATION_TIMEOUT'

const isMessage = ({ name }: FlightEntry): boolean => name === 'send' || name === 'recv'

/**
 * Compares the flight records of a job. For each group it finds the first collective that did not
 * complete, with the ranks that are missing or run another operation. It also finds pending messages.
 */
export function mergeFlight(dumps: readonly FlightDump[]): FlightFinding[] {
  const byRank: RecordsByRank = new Map(dumps.map((dump) => [dump.header.rank, summarize(dump)]))
  const groups = mergeGroups(dumps)
  const collectives = groups.flatMap((group) => examineGroup(group, byRank))
  const messages = findMessages(groups, byRank)
  // List mismatches first: a mismatch often explains why a rank waits for a message.
  const rank = ({ kind }: FlightFinding): number =>
    ['mismatch', 'missing', 'message', 'unfinished'].indexOf(kind)
  return [...collectives, ...messages].sort((a, b) => rank(a) - rank(b))
}

/** The maximum number of causes in a report. */
const SHOWN = 5

/**
 * Finds the possible causes of a failure in the flight records of the attempt.
 *
 * @param known - the ranks of the hosts that have reported; other ranks are not expected to have a record
 */
export function findCauses(
  dumps: readonly FlightDump[],
  known: readonly number[],
): FlightFinding[] {
  return mergeFlight(dumps)
    .flatMap((finding): FlightFinding[] => {
      if (finding.kind === 'unfinished') return []
      if (finding.kind !== 'missing') return [finding]
      const unknown = finding.unknown.filter((rank) => known.includes(rank))
      return finding.missing.length + unknown.length === 0 ? [] : [{ ...finding, unknown }]
    })
    .slice(0, SHOWN)
}

function mergeGroups(dumps: readonly FlightDump[]): MergedGroup[] {
  const groups = new Map<number, MergedGroup>()
  for (const { header, entries } of dumps) {
    for (const { id, name, ranks } of header.groups) {
      if (!groups.has(id)) groups.set(id, { id, name, ranks, collectives: new Map() })
    }
    for (const entry of entries) {
      if (isMessage(entry) || entry.state === 'refused') continue
      const collectives = groups.get(entry.group)?.collectives
      const at = collectives?.get(entry.sequence) ?? new Map<number, FlightEntry>()
      at.set(header.rank, entry)
      collectives?.set(entry.sequence, at)
    }
  }
  return [...groups.values()].sort((a, b) => a.id - b.id)
}

function examineGroup(group: MergedGroup, byRank: RecordsByRank): FlightFinding[] {
  const sequences = [...group.collectives.keys()].sort((a, b) => a - b)
  for (const sequence of sequences) {
    const entered = group.collectives.get(sequence)!
    const calls = [...entered.values()]
    if (new Set(calls.map(({ operation }) => operation)).size > 1) {
      return [mismatchOf(group, sequence, entered)]
    }
    if (calls.every(({ state }) => state === 'done')) continue
    const waiting = [...entered].filter(([, { state }]) => state !== 'done').map(([rank]) => rank)
    const absent = group.ranks.filter((rank) => !entered.has(rank))
    const missing = absent
      .filter((rank) => (byRank.get(rank)?.last.get(group.id)?.sequence ?? -1) < sequence)
      .flatMap((rank) => placeOf(rank, group, sequence, byRank) ?? [])
    const unknown = absent.filter((rank) => !byRank.has(rank))
    const { name, label } = calls.find(({ label }) => label !== undefined) ?? calls[0]!
    const about = { group: group.name, sequence, name, label }
    if (missing.length > 0 || unknown.length > 0) {
      return [{ kind: 'missing', ...about, missing, waiting, unknown }]
    }
    const errors = [...new Set(calls.flatMap(({ error }) => error ?? []))]
    const waitsFor = [...new Set(calls.flatMap((entry) => entry.waitsFor ?? []))]
    return [{ kind: 'unfinished', ...about, running: waiting, errors, waitsFor }]
  }
  return []
}

function mismatchOf(
  group: MergedGroup,
  sequence: number,
  entered: ReadonlyMap<number, FlightEntry>,
): FlightFinding {
  const operations = [...new Set([...entered.values()].map(({ operation }) => operation))]
  const calls = operations.map((operation) => {
    const own = [...entered].filter(([, entry]) => entry.operation === operation)
    return {
      operation,
      label: own.map(([, entry]) => entry.label).find((text) => text !== undefined),
      ranks: own.map(([rank]) => rank),
      sites: [...new Set(own.flatMap(([, { site }]) => site ?? []))],
    }
  })
  return { kind: 'mismatch', group: group.name, sequence, calls }
}

function findMessages(groups: readonly MergedGroup[], byRank: RecordsByRank): MessageFinding[] {
  const all = [...byRank.values()]
  const byId = new Map(groups.map((group) => [group.id, group]))
  /** The time of the first time-out of any rank, in milliseconds since 1970. */
  let expired = Infinity
  for (const { header, entries } of all) {
    for (const { error, completed } of entries) {
      if (error === TIMEOUT) expired = Math.min(expired, startOf(header) + completed)
    }
  }
  return all.flatMap(({ header, entries }) => {
    const pending = entries.filter((entry) => isPendingMessage(entry, expired - startOf(header)))
    return pending.flatMap((entry): MessageFinding[] => {
      const group = byId.get(entry.group)
      const { peer, tag = 0, name, operation, label } = entry
      if (group === undefined) return []
      const place = peer === undefined ? undefined : placeOf(peer, group, Infinity, byRank)
      const about = { name, operation, label, peer, tag, place }
      return [{ kind: 'message', group: group.name, rank: header.rank, ...about }]
    })
  })
}

/** The time at which the monotonic clock of a rank was zero, in milliseconds since 1970. */
function startOf({ time, at }: FlightDump['header']): number {
  return Date.parse(time) - at
}

/**
 * Whether the peer of a send or receive may not have taken part in it. That is so if the entry is
 * unfinished or timed out, or if it began before `expired` and failed because of a peer or a group.
 *
 * @param expired - the time of the first time-out of any rank, on the clock of the entry
 */
function isPendingMessage(entry: FlightEntry, expired: number): boolean {
  if (!isMessage(entry)) return false
  const { state, error = '', posted } = entry
  if (state === 'running' || error === TIMEOUT) return true
  return posted < expired && expired < Infinity && /^ERR_TSR_(PEER|GROUP)_/.test(error)
}

/** The operation of a rank at this sequence number of a group; undefined without a record of the rank. */
function placeOf(
  rank: number,
  { id }: MergedGroup,
  sequence: number,
  byRank: RecordsByRank,
): RankPlace | undefined {
  const record = byRank.get(rank)
  if (record === undefined) return undefined
  const [last, running] = [record.last.get(id), record.running]
  return {
    rank,
    last: last && nameOf(last),
    running: running && nameOf(running),
    late: record.refused.has(`${id} ${sequence}`),
  }
}

type RecordsByRank = ReadonlyMap<number, ReturnType<typeof summarize>>

function summarize({ header, entries }: FlightDump) {
  /** The last collective of each group. */
  const last = new Map<number, FlightEntry>()
  /** The group and the sequence number of each refused collective. */
  const refused = new Set<string>()
  for (const entry of entries) {
    const { group, sequence, state } = entry
    if (isMessage(entry)) continue
    if (state === 'refused') refused.add(`${group} ${sequence}`)
    else last.set(group, entry)
  }
  const running = entries.findLast(({ state }) => state === 'running')
  return { header, entries, last, refused, running }
}

function nameOf(entry: FlightEntry): string {
  const { operation, sequence, label } = entry
  const what = isMessage(entry) ? nameMessage(entry) : `${operation} #${sequence}`
  return what + inBrackets(label)
}

/** The maximum number of groups whose last collective is kept. */
const GROUPS_KEPT = 64

/**
 * Shortens a flight record for sending: keeps its last `count` operations, unfinished earlier ones, and
 * the last collective of each group. The findings are the same as for the whole record, unless ranks are
 * more than `count` operations apart.
 */
export function tailOfFlight({ header, entries }: FlightDump, count: number): FlightDump {
  const running = entries.filter(({ state }) => state === 'running').slice(-count)
  const last = new Map<number, FlightEntry>()
  for (const entry of entries) if (!isMessage(entry)) last.set(entry.group, entry)
  const lasting = [...last.values()].slice(-GROUPS_KEPT)
  const kept = new Set([...entries.slice(-count), ...running, ...lasting])
  const used = new Set([...kept].map(({ group }) => group))
  const groups = header.groups.filter(({ id }) => used.has(id))
  return { header: { ...header, groups }, entries: entries.filter((entry) => kept.has(entry)) }
}
