import {
  exitCodeOf,
  exitCodeOfError,
  findRootCause,
  type FlightFinding,
} from '../../../internals/launcher/report.ts'
import type { RankPlace } from '../../../internals/launcher/nodes.ts'
import { crashed, died, errorReport, exited, killed, stopped } from '../../support/outcomes.ts'

const lost = (at: number, peer: number) =>
  errorReport({ at, code: 'ERR_TSR_PEER_LOST', peers: [peer], distance: 3 })
const left = (at: number, peer: number) =>
  errorReport({ at, code: 'ERR_TSR_PEER_LEFT', peers: [peer], distance: 1 })

it.each([
  ['ERR_TSR_RENDEZVOUS_TIMEOUT', 75, 'none'],
  ['ERR_TSR_SPAWN', 75, 'EAGAIN'],
  ['ERR_TSR_SPAWN', 2, 'EACCES'],
  ['ERR_TSR_USAGE', 2, 'none'],
  ['ERR_TSR_STORE_ADDRESS', 2, 'none'],
] as const)(
  'the exit code after %s is %i, which tells a supervisor whether to retry (%s)',
  (code, expected, errno) => {
    const cause = Object.assign(new Error(), { code: errno })
    expect(exitCodeOfError({ code, cause })).toBe(expected)
  },
)

it('the root cause is undefined if no rank failed', () => {
  expect(findRootCause([exited(0, 0), exited(1, 0)])).toBeUndefined()
})

it('the root cause is the first error that no other rank caused', () => {
  const outcomes = [died(0, lost(100, 2)), died(1, lost(101, 2)), died(2, errorReport({ at: 150 }))]
  expect(findRootCause(outcomes)).toMatchObject({ culprit: { rank: 2 }, presumed: false })
})

it('the root cause depends on the times of errors, not on the times of exits', () => {
  const slow = died(0, errorReport({ at: 100 }), { endedAt: 900 })
  const quick = died(1, errorReport({ at: 200 }), { endedAt: 210 })
  expect(findRootCause([slow, quick])?.culprit.rank).toBe(0)
})

it.each(['SIGKILL', 'SIGSEGV'] as const)(
  'the root cause is a rank killed by %s, not a peer that lost it',
  (signal) => {
    const outcomes = [died(0, lost(100, 1)), killed(1, signal, 150), stopped(2)]
    const cause = findRootCause(outcomes)!
    expect(cause.culprit.rank).toBe(1)
    expect(exitCodeOf(cause, { kills: 0 })).toBe(signal === 'SIGKILL' ? 137 : 139)
    // The kernel counted an out-of-memory kill.
    expect(exitCodeOf(cause, { kills: 1 })).toBe(signal === 'SIGKILL' ? 75 : 139)
  },
)

it('the exit code says that a retry may succeed after a rank that got no thread', () => {
  const stderrTail = ['node[7]: pthread_create: Resource temporarily unavailable']
  const unlucky = killed(1, 'SIGABRT', 150, { stderrTail })
  expect(exitCodeOf(findRootCause([stopped(0), unlucky])!, { kills: 0 })).toBe(75)
  const library = [
    'OpenBLAS blas_thread_init: pthread_create failed for thread 1 of 4: Resource temporarily unavailable',
  ]
  const interrupted = killed(1, 'SIGINT', 150, { stderrTail: library })
  expect(exitCodeOf(findRootCause([stopped(0), interrupted])!, { kills: 0 })).toBe(75)
  const exits = exited(1, 3, { stderrTail })
  expect(exitCodeOf(findRootCause([stopped(0), exits])!, { kills: 0 })).toBe(3)
  const crashes = killed(1, 'SIGSEGV', 150, { stderrTail })
  expect(exitCodeOf(findRootCause([stopped(0), crashes])!, { kills: 0 })).toBe(139)
  const calls = died(1, errorReport({ at: 150, message: 'api.thread_create is not a function' }))
  expect(exitCodeOf(findRootCause([stopped(0), calls])!, { kills: 0 })).toBe(1)
  const spawning = died(1, errorReport({ at: 150, message: 'spawn git EAGAIN' }))
  expect(exitCodeOf(findRootCause([stopped(0), spawning])!, { kills: 0 })).toBe(75)
})

it('the root cause is an exhausted heap, whatever else the rank reported', () => {
  const outcomes = [died(0, lost(100, 1)), crashed(1, { error: lost(90, 0), endedAt: 150 })]
  expect(findRootCause(outcomes)?.culprit.rank).toBe(1)
})

it('the root cause is not a rank that crashed after losing a peer', () => {
  const outcomes = [
    killed(0, 'SIGABRT', 200, { error: lost(100, 1) }),
    exited(1, 3, { endedAt: 250 }),
  ]
  expect(findRootCause(outcomes)?.culprit.rank).toBe(1)
})

it('the root cause is a rank that was stopped after its own error, not a peer that lost it', () => {
  const dying = stopped(1, { error: errorReport({ at: 90 }), stoppedAt: 120 })
  expect(findRootCause([died(0, lost(100, 1)), dying])?.culprit.rank).toBe(1)
})

it('the root cause is not a rank that threw because it was stopped', () => {
  const untidy = stopped(1, {
    exitCode: 1,
    signal: null,
    error: errorReport({ at: 130 }),
    stoppedAt: 120,
  })
  expect(findRootCause([untidy, exited(0, 3, { endedAt: 110 })])?.culprit.rank).toBe(0)
})

it('the root cause is a rank that left early, and the exit code comes from the peer that missed it', () => {
  const cause = findRootCause([died(0, left(100, 2)), stopped(1), exited(2, 0, { endedAt: 50 })])!
  expect(cause).toMatchObject({ culprit: { rank: 2 }, witness: { rank: 0 } })
  expect(exitCodeOf(cause, { kills: 0 })).toBe(1)
})

it('the root cause is a rank that left early, even if it was stopped before its process ended', () => {
  const cause = findRootCause([died(0, left(100, 1)), stopped(1), stopped(2)])!
  expect(cause).toMatchObject({ culprit: { rank: 1 }, witness: { rank: 0 }, presumed: false })
  expect(exitCodeOf(cause, { kills: 0 })).toBe(1)
})

it('the root cause is presumed if every known error was caused by another rank', () => {
  expect(findRootCause([died(0, lost(100, 9)), died(1, lost(90, 9))])).toMatchObject({
    culprit: { rank: 1 },
    presumed: true,
  })
})

it('the root cause is the rank that was lost first, if no error comes from a rank itself', () => {
  const outcomes = [died(0, lost(100, 1)), died(1, lost(120, 0)), died(2, lost(110, 0))]
  expect(findRootCause(outcomes)).toMatchObject({
    culprit: { rank: 1 },
    witness: { rank: 0 },
    presumed: true,
  })
})

it('the root cause is the rank that a peer lost, even if ranks that the peer informed ended before it', () => {
  const toldBy = (rank: number) =>
    errorReport({ at: 100, code: 'ERR_TSR_PEER_FAILED', peers: [rank], distance: 3 })
  const [first, second] = [died(0, toldBy(3)), died(3, toldBy(2))]
  const cause = findRootCause([first, died(1, lost(102, 2)), died(2, lost(101, 1)), second])
  expect(cause).toMatchObject({ culprit: { rank: 1 }, witness: { rank: 2 }, presumed: true })
})

it('the root cause is a rank that another process killed while the launcher stopped it', () => {
  const killedMeanwhile = stopped(1, { signal: 'SIGKILL', stopSignal: 'SIGTERM', stoppedAt: 120 })
  expect(findRootCause([died(0, lost(100, 1)), killedMeanwhile])?.culprit.rank).toBe(1)
})

describe('the root cause of a hang', () => {
  const waits = (at: number, operation: string, peers: number[]) =>
    errorReport({
      at,
      code: 'ERR_TSR_OPERATION_TIMEOUT',
      distance: 2,
      wait: { operation, group: 'world', label: 'head', milliseconds: 30_000, peers },
    })
  const place = (sequence: number, facts: Partial<RankPlace> = {}): { place: RankPlace } => ({
    place: {
      ...{ state: 'running', operation: 'allReduce(sum) float32[4] by ring', group: 'world' },
      ...{ sequence, milliseconds: 31_000, isSuspended: false },
      ...facts,
    },
  })
  const operation = 'allReduce(sum) float32[4] by ring #17'
  const missing = (ranks: number[], unknown: number[] = []): FlightFinding => ({
    ...{ kind: 'missing', group: 'world', sequence: 17, name: 'allReduce', operation },
    ...{ label: 'head', waiting: [0, 2, 3], unknown },
    missing: ranks.map((rank) => ({ rank, last: 'barrier #16', running: undefined, late: false })),
  })

  it('is the rank that never entered the operation, not the rank that timed out', () => {
    const outcomes = [
      died(0, waits(100, operation, [1])),
      stopped(1, place(16)),
      ...[2, 3].map((rank) => died(rank, waits(101, operation, [1]))),
    ]
    const cause = findRootCause(outcomes, [missing([1])])!
    expect(cause).toMatchObject({ culprit: { rank: 1 }, witness: { rank: 0 }, presumed: false })
    expect(cause.absence).toEqual({
      what: 'never entered allReduce #17 (head) of group world, in which ranks 0, 2-3 waited 30.0 s',
      last: 'Its last operation was barrier #16, and it had been computing or waiting for 31.0 s since.',
    })
    expect(exitCodeOf(cause, { kills: 0 })).toBe(1)
  })

  it('is found without flight records, by following which rank waits for which', () => {
    const outcomes = [
      died(0, waits(100, operation, [3])),
      stopped(1, place(16)),
      died(2, waits(102, operation, [1])),
      died(3, waits(101, operation, [2])),
    ]
    const cause = findRootCause(outcomes)
    expect(cause?.culprit.rank).toBe(1)
    expect(cause?.absence?.what).toBe(
      `never entered ${operation} (head) of group world, in which ranks 0, 2-3 waited 30.0 s`,
    )
  })

  it('is the suspended process among ranks that left no record', () => {
    const outcomes = [
      died(0, waits(100, operation, [1, 2])),
      stopped(1, place(17, { state: 'operation' })),
      stopped(2, place(17, { state: 'operation', isSuspended: true })),
    ]
    const cause = findRootCause(outcomes, [missing([], [1, 2])])
    expect(cause?.culprit.rank).toBe(2)
    expect(cause?.absence).toMatchObject({
      what: expect.stringMatching(/^did not continue in allReduce #17/),
      last: expect.stringMatching(/^The process is stopped, by SIGSTOP/),
    })
  })

  it('is the rank that never joined the job', () => {
    const wait = { operation: 'initProcessGroup', milliseconds: 5000, peers: [1] }
    const outcomes = [
      died(0, errorReport({ code: 'ERR_TSR_TIMEOUT', distance: 2, wait })),
      stopped(1),
    ]
    expect(findRootCause(outcomes)?.absence).toEqual({
      what: 'never joined the job, for which rank 0 waited 5.00 s',
      last: 'It had not joined the job.',
    })
  })

  it('is not a sender that waits in a collective itself, even if it left no record', () => {
    const recv = 'recv float32[4] from rank 2, tag 0'
    const barrier = place(0, { state: 'operation', operation: 'barrier by flat' })
    const others = [stopped(1, barrier), stopped(2, barrier)]
    const alone = [died(0, waits(100, recv, [2])), ...others]
    expect(findRootCause(alone)).toMatchObject({ culprit: { rank: 0 } })
    expect(findRootCause(alone, [missing([0])])).toMatchObject({ culprit: { rank: 0 } })
    // Rank 1 has already left the barrier, with an error, and has no record.
    const left = [died(0, waits(100, recv, [2])), stopped(1, place(17)), stopped(2, barrier)]
    expect(findRootCause(left, [missing([0], [1])])).toMatchObject({ culprit: { rank: 0 } })
    const computes = [died(0, waits(100, recv, [2])), stopped(1, barrier), stopped(2, place(0))]
    expect(findRootCause(computes)).toMatchObject({ culprit: { rank: 2 } })
  })

  it('is presumed if all ranks wait for each other', () => {
    const outcomes = [
      died(0, waits(100, 'recv float32[4] from rank 1', [1])),
      died(1, waits(101, 'recv float32[4] from rank 0', [0])),
    ]
    expect(findRootCause(outcomes)).toMatchObject({ culprit: { rank: 0 }, presumed: true })
  })

  it('is a crash, not a rank that timed out before the crash', () => {
    const outcomes = [died(0, waits(100, operation, [1])), killed(1, 'SIGSEGV', 150)]
    expect(findRootCause(outcomes)).toMatchObject({ culprit: { rank: 1, signal: 'SIGSEGV' } })
  })
})

it('the root cause is the rank whose operation differs from most others', () => {
  const differs = (at: number) => errorReport({ at, code: 'ERR_TSR_MISMATCH', peers: [0] })
  const outcomes = [died(0, differs(100)), died(1, differs(101)), died(2, differs(102))]
  const call = (operation: string, ranks: number[]) => ({ operation, ranks, sites: [] })
  const calls = [call('barrier', [0, 1]), call('allReduce', [2])]
  const finding = { kind: 'mismatch', group: 'world', sequence: 3, calls } as const
  expect(findRootCause(outcomes, [finding])?.culprit.rank).toBe(2)
  expect(findRootCause(outcomes)?.culprit.rank).toBe(0)
})
