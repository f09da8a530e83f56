import { jest } from '@jest/globals'
import {
  packReport,
  shortenFlight,
  unpackReport,
  judge,
  countRestarts,
  reportMessage,
  type NodePlan,
  type NodeReport,
  type RankOutcome,
} from '../../internals/launcher/nodes.ts'
import { nodeFailureText } from '../../internals/launcher/report.ts'
import { died, errorReport, exited, killed, stopped } from '../support/outcomes.ts'
import { done, dumpOf } from '../../distributed/record/dumps.ts'

const plan: NodePlan = {
  runId: 'run',
  master: { host: '10.0.0.1', port: 29_500 },
  nodes: [0, 1].map((nodeRank) => ({
    id: String(nodeRank),
    nodeRank,
    nproc: 2,
    role: 'default',
    host: `h${nodeRank}`,
    address: `10.0.0.${nodeRank + 1}`,
  })),
}
const budget = { restarts: 0, maxRestarts: 0 }
const victim = (peer: number) =>
  errorReport({ at: 90, code: 'ERR_TSR_PEER_LOST', peers: [peer], distance: 3 })

function report(
  nodeRank: number,
  outcomes: RankOutcome[],
  changes: Partial<NodeReport> = {},
): NodeReport {
  const memory = { kills: undefined, available: undefined, limit: undefined }
  const facts = { host: `h${nodeRank}`, memory, logs: undefined }
  const own = { nodeRank, outcomes, interruption: undefined, facts, flight: [], ...changes }
  const sent: unknown = JSON.parse(JSON.stringify(packReport(own)))
  if (!reportMessage.is(sent)) throw new Error('no report')
  return unpackReport(sent)
}

it('the verdict is success if all ranks of all hosts succeed', () => {
  const reports = [report(0, [exited(0, 0), exited(1, 0)]), report(1, [exited(2, 0), exited(3, 0)])]
  expect(judge({ plan, reports, lost: [], ...budget })).toEqual({ kind: 'success' })
})

it('the verdict finds the first cause on any host', () => {
  const reports = [
    report(0, [died(0, victim(3)), stopped(1)]),
    report(1, [died(2, victim(3)), killed(3, 'SIGSEGV', 100)]),
  ]
  expect(judge({ plan, reports, lost: [], restarts: 1, maxRestarts: 3 })).toMatchObject({
    kind: 'failure',
    failure: { rank: 3, worldSize: 4, host: 'h1', signal: 'SIGSEGV', jobExitCode: 139 },
    restart: { number: 2, of: 3 },
  })
})

it('restarts are counted from zero after an attempt of an hour', () => {
  jest.useFakeTimers()
  const count = countRestarts()
  const fail = (after: number) => {
    count.begin()
    jest.advanceTimersByTime(after)
    const reports = [report(0, [exited(0, 3), stopped(1)])]
    return count.take(judge({ plan, reports, lost: [], restarts: count.used, maxRestarts: 2 }))
  }
  expect(fail(1000)).toMatchObject({ restart: { number: 1 } })
  expect(fail(3_599_000)).toMatchObject({ restart: { number: 2 } })
  expect(fail(3_600_000)).toMatchObject({ restart: { number: 1 } })
  expect(fail(1000)).toMatchObject({ restart: { number: 2 } })
  expect(fail(1000)).not.toHaveProperty('restart')
  jest.useRealTimers()
})

it('the verdict names a lost host, not the ranks that failed because of the loss', () => {
  const lost = { node: 1, host: 'h1', address: '10.0.0.2', reason: 'its launcher has ended' }
  const reports = [report(0, [died(0, victim(2)), stopped(1)])]
  const verdict = judge({ plan, reports, lost: [lost], restarts: 0, maxRestarts: 3 })
  expect(verdict.kind).toBe('lost')
  if (verdict.kind !== 'lost') return
  expect(nodeFailureText(verdict.failure, false))
    .toBe(`── tsrun: the job failed ───────────────────────────────────────────────────────
first cause  node 1 (ranks 2-3) is gone: its launcher has ended
host         h1, 10.0.0.2
others       rank 0: failed because of rank 2 (ERR_TSR_PEER_LOST), after 0.09 s
             rank 1: stopped by tsrun, after 0.30 s
run          run
── exit code 75 ────────────────────────────────────────────────────────────────
`)
})

it('the verdict names a rank that failed by itself before a lost host, and allows no restart', () => {
  const lost = { node: 1, host: 'h1', address: '10.0.0.2', reason: 'its launcher has ended' }
  const reports = [report(0, [died(0, errorReport({})), stopped(1)])]
  const verdict = judge({ plan, reports, lost: [lost], restarts: 0, maxRestarts: 3 })
  expect(verdict).toMatchObject({
    kind: 'failure',
    failure: { rank: 0, others: ['rank 1: stopped by tsrun, after 0.30 s', expect.anything()] },
  })
  expect(verdict).not.toHaveProperty('restart')
})

it('the verdict is an interruption if one host was stopped', () => {
  const interruption = { exitCode: 130, reason: 'Ctrl-C' }
  const reports = [report(0, [stopped(0), stopped(1)]), report(1, [stopped(2)], { interruption })]
  expect(judge({ plan, reports, lost: [], ...budget })).toEqual({
    kind: 'interrupted',
    exitCode: 130,
  })
})

it('a report is unchanged after its transfer through the store', () => {
  const before = [stopped(0), died(1, errorReport({ at: 100 })), exited(2, 0)]
  const { outcomes, facts } = report(0, before)
  expect(facts.memory.kills).toBeUndefined()
  outcomes.forEach(({ startedAt, endedAt, stoppedAt, error }, i) => {
    expect(startedAt).toBeCloseTo(before[i]!.startedAt, -2)
    expect(endedAt).toBeCloseTo(before[i]!.endedAt, -2)
    expect(stoppedAt ?? Infinity).toBeCloseTo(before[i]!.stoppedAt ?? Infinity, -2)
    expect(error === undefined).toBe(before[i]!.error === undefined)
  })
})

describe('flight records of several hosts', () => {
  const running = { name: 'barrier', operation: 'barrier', state: 'running' } as const
  const timedOut = (peers: number[]) =>
    errorReport({
      code: 'ERR_TSR_OPERATION_TIMEOUT',
      distance: 2,
      peers,
      wait: { operation: 'barrier #3', group: 'world', milliseconds: 500, peers },
    })

  it('name the rank of another host that never entered a collective', () => {
    // Ranks wait for their neighbours only; rank 3 is the one that is somewhere else.
    const waits = [...done(3), { ...running, sequence: 3 }]
    const reports = [
      report(0, [died(0, timedOut([1])), stopped(1)], {
        flight: [dumpOf(0, 4, waits), dumpOf(1, 4, waits)],
      }),
      report(1, [stopped(2), stopped(3)], { flight: [dumpOf(2, 4, waits), dumpOf(3, 4, done(3))] }),
    ]
    const verdict = judge({ plan, reports, lost: [], ...budget })
    expect(verdict).toMatchObject({
      kind: 'failure',
      failure: {
        rank: 3,
        ended: 'never entered barrier #3 of group world, in which ranks 0-2 waited 0.50 s',
        last: expect.stringContaining('Its last operation was allReduce(sum) float32[4] #2'),
      },
    })
    // Each host alone would have had to blame another one.
    const alone = reports.map((one) => ({ ...one, flight: [] }))
    expect(judge({ plan, reports: alone, lost: [], ...budget })).toMatchObject({
      failure: { rank: 1 },
    })
  })

  it('name the rank whose operation differs from all others, on any host', () => {
    const mismatch = errorReport({ code: 'ERR_TSR_MISMATCH', peers: [2] })
    const other = [...done(2), { sequence: 2, operation: 'broadcast', state: 'failed' } as const]
    const reports = [
      report(0, [died(0, mismatch), stopped(1)], {
        flight: [dumpOf(0, 4, done(3)), dumpOf(1, 4, done(3))],
      }),
      report(1, [stopped(2), stopped(3)], { flight: [dumpOf(2, 4, other), dumpOf(3, 4, done(3))] }),
    ]
    expect(judge({ plan, reports, lost: [], ...budget })).toMatchObject({ failure: { rank: 2 } })
  })

  it('blame a rank without a record, but not a rank whose host is lost', () => {
    const waits = [{ ...running, sequence: 0 }]
    const present = report(0, [died(0, timedOut([1, 2, 3])), stopped(1)], {
      flight: [dumpOf(0, 4, waits)],
    })
    const lost = { node: 1, host: 'h1', address: '10.0.0.2', reason: 'it was silent for 30 s' }
    expect(judge({ plan, reports: [present], lost: [lost], ...budget })).toMatchObject({
      failure: { rank: 1, ended: expect.stringMatching(/^never entered barrier #0/) },
    })
  })

  it('are sent in at most 4 MiB for any number of ranks', () => {
    const ranks = Array.from({ length: 256 }, (_, rank) => rank)
    const site = 'at train (file:///home/me/project/train.ts:10:12)'
    const dumps = ranks.map((rank) =>
      dumpOf(rank, 256, done(200, { site, label: 'layer4.weight' })),
    )
    const sent = shortenFlight(dumps)
    expect(sent).toHaveLength(256)
    expect(JSON.stringify(sent).length).toBeLessThan(4 << 20)
    expect(shortenFlight(dumps.slice(0, 8))[0]!.entries).toHaveLength(50)
    expect(shortenFlight(dumps, 1000)).toEqual([])
  })

  it('are refused if they are malformed', () => {
    const one = report(0, [exited(0, 0), exited(1, 0)])
    const damaged = { ...dumpOf(0, 4, []), entries: [{ number: 'one' }] }
    expect(
      reportMessage.is(JSON.parse(JSON.stringify({ ...one, flight: [dumpOf(0, 4, done(2))] }))),
    ).toBe(true)
    expect(reportMessage.is(JSON.parse(JSON.stringify({ ...one, flight: [damaged] })))).toBe(false)
  })
})

describe('an elastic job', () => {
  const lost = { node: 1, host: 'h1', address: '10.0.0.2', reason: 'its launcher has ended' }
  const ranks = (...outcomes: RankOutcome[]): NodeReport => ({
    nodeRank: 0,
    outcomes,
    interruption: undefined,
    facts: { host: 'h0', memory: { outOfMemory: 0, kills: 0 }, logs: undefined } as never,
    flight: [],
  })
  const elastic = { plan, lost: [], isElastic: true, ...budget }

  it('continues without a lost host', () => {
    const reports = [ranks(stopped(0), died(1, victim(2)))]
    expect(judge({ ...elastic, reports, lost: [lost] })).toEqual({
      kind: 'change',
      reason: 'node 1 (h1) is gone: its launcher has ended',
    })
  })

  it('continues without a host that has left by itself, however its ranks ended', () => {
    const reports = [ranks(exited(0, 143), stopped(1))]
    const left = { ...lost, reason: 'it was stopped by SIGTERM' }
    expect(judge({ ...elastic, reports, lost: [left], hasLeft: true })).toEqual({
      kind: 'change',
      reason: 'node 1 (h1) is gone: it was stopped by SIGTERM',
    })
  })

  it('restarts with a host that has joined, unless all ranks have succeeded', () => {
    const change = 'h2 has joined'
    const stoppedRanks = [ranks(stopped(0), stopped(1))]
    expect(judge({ ...elastic, reports: stoppedRanks, change })).toEqual({
      kind: 'change',
      reason: change,
    })
    const ended = [ranks(exited(0, 0), exited(1, 0))]
    expect(judge({ ...elastic, reports: ended, change })).toEqual({ kind: 'success' })
  })

  it('counts only failures of ranks as restarts', () => {
    const reports = [ranks(exited(0, 3), stopped(1))]
    const failed = { ...elastic, reports, lost: [lost], maxRestarts: 1 }
    expect(judge(failed)).toMatchObject({ kind: 'failure', restart: { number: 1, of: 1 } })
    expect(judge({ ...failed, restarts: 1 })).not.toHaveProperty('restart')
    expect(judge({ ...failed, isElastic: false })).not.toHaveProperty('restart')
  })
})
