import { SpanRecorder } from '@tsrun/distributed/record'
import { readDiagnosis, decodeNotice, encodeNotice } from '../../internals/distributed/engine.ts'
import { thrownBy } from '../support/outcome.ts'
import { SteppedWorld } from '../support/stepped-world.ts'

it('traffic is counted for each link', async () => {
  const world = new SteppedWorld(3)
  const [first, second] = world.groups as [(typeof world.groups)[0], (typeof world.groups)[0]]
  expect(first.linkStatistics()).toMatchObject([
    { peer: 1, worldRank: 1, bytesSent: 0, bytesReceived: 0, framesSent: 0 },
    { peer: 2, worldRank: 2, bytesSent: 0, bytesReceived: 0, framesSent: 0 },
  ])
  await world.finish([first.send(new Float32Array(100), 1), second.recv(new Float32Array(100), 0)])
  const [towards, other] = first.linkStatistics()
  const [back] = second.linkStatistics()
  expect(towards!.framesSent).toBe(1)
  expect(towards!.bytesSent).toBeGreaterThan(400)
  expect(towards!.transport).toBe('memory')
  expect(back!.bytesReceived).toBe(towards!.bytesSent)
  expect(other).toMatchObject({ bytesSent: 0, framesSent: 0 })
})

it('operations are recorded as spans that separate waiting from transfer', async () => {
  const world = new SteppedWorld(2)
  const recorder = new SpanRecorder({ rank: 1 })
  const [first, second] = world.groups as [(typeof world.groups)[0], (typeof world.groups)[0]]
  second.recordSpans(recorder)
  await world.finish([first.send(new Float64Array(4), 1), second.recv(new Float64Array(4), 0)])
  const works = world.groups.map((group) => group.allReduce(new Float32Array(8), { label: 'sums' }))
  await world.finish(works)
  second.recordSpans(undefined)
  await world.finish(world.groups.map((group) => group.barrier()))
  const spans = recorder.spans()
  expect(spans).toMatchObject([
    { rank: 1, kind: 'call', name: 'recv' },
    { rank: 1, kind: 'recv', name: 'recv', bytes: 32, peer: 0 },
    { rank: 1, kind: 'call', name: 'sums' },
    { rank: 1, kind: 'collective', name: 'sums', bytes: 32, group: 0, sequence: 0 },
  ])
  const { posted, started, completed } = works[1]!.timing!
  expect(spans[3]).toMatchObject({ start: posted, end: completed, waited: started - posted })
  expect(spans[3]!.noticed).toBeGreaterThanOrEqual(0)
})

it('an error at the debug level "detail" names the call sites of both ranks', async () => {
  const world = new SteppedWorld(2, { diagnosis: { detail: true } })
  const works = [
    world.groups[0]!.allReduce(new Float32Array(4)),
    world.groups[1]!.allReduce(new Float32Array(5)),
  ]
  const errors = (await world.outcomes(works)) as Error[]
  for (const { message } of errors) {
    const sites = [...message.matchAll(/\(called at (.+?observing\.test\.ts:\d+:\d+)\)/g)]
    expect(new Set(sites.map(([, site]) => site)).size).toBe(2)
  }
})

it('call sites are not recorded at debug levels below "detail"', async () => {
  const world = new SteppedWorld(2)
  const works = [4, 5].map((count, rank) => world.groups[rank]!.allReduce(new Float32Array(count)))
  for (const error of (await world.outcomes(works)) as Error[]) {
    expect(error.message).not.toContain('called at')
  }
})

it.each([
  [{ TSRUN_STALL_WARNING: '-1' }, 'TSRUN_STALL_WARNING'],
  [{ TSRUN_STALL_WARNING: 'soon' }, 'TSRUN_STALL_WARNING'],
  [{ TSRUN_DEBUG: 'loud' }, 'TSRUN_DEBUG'],
  [{ TSRUN_FLIGHT_ENTRIES: '0' }, 'TSRUN_FLIGHT_ENTRIES'],
  [{ TSRUN_FLIGHT_ENTRIES: '1.5' }, 'TSRUN_FLIGHT_ENTRIES'],
])('the diagnosis options refuse %j', (env, variable) => {
  const error = thrownBy(() => readDiagnosis(env))
  expect(error?.code).toBe('ERR_TSR_ENVIRONMENT')
  expect(error?.message).toContain(variable)
})

it('the settings of the diagnosis come from the environment, with defaults', () => {
  expect(readDiagnosis({})).toMatchObject({
    ...{ flightEntries: 2048, stallWarning: 30_000, detail: false, flightDirectory: undefined },
  })
  const env = { TSRUN_STALL_WARNING: '0', TSRUN_DEBUG: 'detail', TSRUN_FLIGHT_DIR: '/f' }
  expect(readDiagnosis(env)).toMatchObject({
    ...{ stallWarning: Infinity, detail: true, flightDirectory: '/f' },
  })
})

it('a malformed notice is ignored', () => {
  expect(decodeNotice(encodeNotice({ kind: 'answer', text: 'idle' }))).toEqual({
    ...{ kind: 'answer', text: 'idle' },
  })
  const odd = encodeNotice({ kind: 'answer', text: 7 as unknown as string })
  for (const bytes of [odd, Uint8Array.of(), Uint8Array.of(0xc1), new Uint8Array(64)]) {
    expect(decodeNotice(bytes)).toBeUndefined()
  }
})
