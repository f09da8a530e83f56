import type { FlightDump, FlightEntry, FlightGroup } from '@tsrun/distributed/record'

const world = (size: number): FlightGroup => ({
  id: 0,
  name: 'world',
  ranks: Array.from({ length: size }, (_, rank) => rank),
})

/** A dump of a rank of a world, with the operations it called. */
export function dumpOf(
  rank: number,
  worldSize: number,
  entries: readonly Partial<FlightEntry>[],
  groups: readonly FlightGroup[] = [world(worldSize)],
): FlightDump {
  return {
    header: {
      ...{ format: 'tsrun-flight', version: 1, rank, worldSize, pid: 100 + rank, host: 'a' },
      ...{ runId: 'test', restartCount: 0, reason: 'test', time: '2026-01-01', at: 1000, groups },
    },
    entries: entries.map((entry, i) => ({
      ...{ number: i + 1, group: 0, sequence: i, name: 'allReduce', bytes: 16 },
      ...{ operation: 'allReduce(sum) float32[4]', posted: i, started: i, completed: i + 1 },
      state: 'done',
      ...entry,
    })),
  }
}

/** Collectives that ended well. */
export function done(count: number, facts: Partial<FlightEntry> = {}): Partial<FlightEntry>[] {
  return Array.from({ length: count }, (_, sequence) => ({ sequence, ...facts }))
}
