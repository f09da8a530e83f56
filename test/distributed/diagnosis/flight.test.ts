import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { readFlightFolder, type FlightDump } from '@tsrun/distributed/record'
import { thrownBy } from '../support/outcome.ts'
import { SteppedWorld } from '../support/stepped-world.ts'

let folder = ''
beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'tsrun-test-'))))
afterEach(() => {
  rmSync(folder, { recursive: true, force: true })
})

function readDumps(): readonly FlightDump[] {
  const { dumps, problems } = readFlightFolder(folder)
  expect(problems).toEqual([])
  return dumps
}

it('the flight recorder records name, peer, bytes, times and state of each operation', async () => {
  const world = new SteppedWorld(2)
  const [first, second] = world.groups as [(typeof world.groups)[0], (typeof world.groups)[0]]
  await world.finish(
    world.groups.map((group) => group.allReduce(new Float32Array(6), { label: 'gradients' })),
  )
  await world.finish([
    first.send(Int32Array.of(1, 2), 1, { tag: 9 }),
    second.recv(new Int32Array(2), 0, { tag: 9 }),
  ])
  void first.barrier()
  const path = first.dumpFlight(folder)
  expect(path).toBe(join(folder, 'rank-0.jsonl'))
  second.dumpFlight(folder)
  const [dump, other] = readDumps()
  expect(dump?.header).toMatchObject({
    ...{ rank: 0, worldSize: 2, pid: process.pid, reason: 'on request' },
    groups: [{ id: 0, name: 'world', ranks: [0, 1] }],
  })
  expect(dump?.entries).toMatchObject([
    { number: 1, sequence: 0, name: 'allReduce', label: 'gradients', bytes: 24, state: 'done' },
    { number: 2, name: 'send', peer: 1, tag: 9, bytes: 8, state: 'done' },
    { number: 3, sequence: 1, name: 'barrier', bytes: 0, state: 'running', completed: 0 },
  ])
  expect(dump?.entries[0]?.operation).toContain('allReduce(sum) float32[6]')
  expect(other?.entries[1]).toMatchObject({ name: 'recv', peer: 0, tag: 9 })
  for (const { posted, started, completed } of dump!.entries.slice(0, 2)) {
    expect(posted).toBeGreaterThan(0)
    expect(started).toBeGreaterThanOrEqual(posted)
    expect(completed).toBeGreaterThanOrEqual(started)
  }
})

it('the flight recorder keeps the newest operations, up to its capacity', async () => {
  const world = new SteppedWorld(2, { diagnosis: { flightEntries: 8 } })
  for (let i = 0; i < 30; i++) {
    await world.finish(world.groups.map((group) => group.barrier({ label: `step ${i}` })))
  }
  world.groups[0]!.dumpFlight(folder)
  const [dump] = readDumps()
  expect(dump?.entries.map(({ number }) => number)).toEqual([23, 24, 25, 26, 27, 28, 29, 30])
  expect(dump?.entries.at(-1)?.label).toBe('step 29')
})

it('the flight recorder cuts long labels between characters', async () => {
  const world = new SteppedWorld(2)
  await world.finish(world.groups.map((group) => group.barrier({ label: 'ü'.repeat(500) })))
  world.groups[0]!.dumpFlight(folder)
  expect(readDumps()[0]?.entries[0]?.label).toMatch(/^ü{60,70}$/)
})

it('every rank writes its flight log when a group fails, with the ranks it waited for', async () => {
  const world = new SteppedWorld(3, { diagnosis: { flightDirectory: folder } })
  const works = [0, 1].map((rank) => world.groups[rank]!.allReduce(new Float32Array(4)))
  world.drain()
  expect(readdirSync(folder)).toEqual([])
  const controller = new AbortController()
  const aborted = world.groups[0]!.recv(new Float32Array(1), 1, { signal: controller.signal })
  controller.abort()
  await world.outcomes([aborted])
  expect(readdirSync(folder)).toEqual([])

  const wrong = world.groups[2]!.allReduce(new Float32Array(5))
  const outcomes = await world.outcomes([...works, wrong])
  expect(outcomes).toHaveLength(3)
  const dumps = readDumps()
  expect(dumps.map(({ header }) => header.rank)).toEqual([0, 1, 2])
  for (const { header, entries } of dumps) {
    expect(header.reason).toMatch(/float32\[4\]|float32\[5\]/)
    expect(entries[0]).toMatchObject({ name: 'allReduce', state: 'failed' })
    expect(entries[0]?.error).toMatch(/^ERR_TSR_/)
  }
  expect(dumps.some(({ entries }) => (entries[0]?.waitsFor ?? []).length > 0)).toBe(true)
})

it('the flight recorder marks operations that a failed group refuses', async () => {
  const world = new SteppedWorld(2)
  const works = [4, 5].map((count, rank) => world.groups[rank]!.allReduce(new Float32Array(count)))
  await world.outcomes(works)
  await world.outcomes([world.groups[0]!.barrier()])
  world.groups[0]!.dumpFlight(folder)
  expect(readDumps()[0]?.entries.map(({ state }) => state)).toEqual(['failed', 'refused'])
})

it('a flight log lists the groups that exist', async () => {
  const world = new SteppedWorld(3)
  const [pair] = await Promise.all(
    [0, 2].map((rank) => world.groups[rank]!.newGroup([0, 2], { name: 'pair' })),
  )
  pair!.dumpFlight(folder)
  expect(readDumps()[0]?.header.groups).toMatchObject([
    { name: 'world' },
    { name: 'pair', ranks: [0, 2] },
  ])
})

it('the flight recorder reports that it cannot write its log', () => {
  const { groups } = new SteppedWorld(1)
  const group = groups[0]!
  expect(thrownBy(() => group.dumpFlight())?.code).toBe('ERR_TSR_ARGUMENT')
  const error = thrownBy(() => group.dumpFlight('/dev/null/nowhere'))
  expect(error?.code).toBe('ERR_TSR_FLIGHT_DIRECTORY')
  expect(error?.message).toContain('/dev/null/nowhere')
})
