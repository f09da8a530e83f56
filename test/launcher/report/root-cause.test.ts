import { exitCodeOf } from '../../../packages/launcher/src/report/root-cause.ts'
import { findRootCause } from '../../../packages/launcher/src/report/root-cause.ts'
import { crashed, died, errorReport, exited, killed, stopped } from '../support/outcomes.ts'

const lost = (at: number, peer: number) =>
  errorReport({ at, code: 'ERR_TSR_PEER_LOST', peers: [peer], consequence: true })
const left = (at: number, peer: number) =>
  errorReport({ at, code: 'ERR_TSR_PEER_LEFT', peers: [peer] })

it('is undefined when no rank failed', () => {
  expect(findRootCause([exited(0, 0), exited(1, 0)])).toBeUndefined()
})

it('is the first error of its own, not the first error', () => {
  const outcomes = [died(0, lost(100, 2)), died(1, lost(101, 2)), died(2, errorReport({ at: 150 }))]
  expect(findRootCause(outcomes)).toMatchObject({ culprit: { rank: 2 }, presumed: false })
})

it('goes by when errors arose, not by when ranks ended', () => {
  const slow = died(0, errorReport({ at: 100 }), { endedAt: 900 })
  const quick = died(1, errorReport({ at: 200 }), { endedAt: 210 })
  expect(findRootCause([slow, quick])?.culprit.rank).toBe(0)
})

it.each(['SIGKILL', 'SIGSEGV'] as const)(
  'is a rank killed by %s before those who lost it',
  (signal) => {
    const outcomes = [died(0, lost(100, 1)), killed(1, signal, 150), stopped(2)]
    const cause = findRootCause(outcomes)!
    expect(cause.culprit.rank).toBe(1)
    expect(exitCodeOf(cause)).toBe(signal === 'SIGKILL' ? 137 : 139)
  },
)

it('is an exhausted heap, whatever else the rank reported', () => {
  const outcomes = [died(0, lost(100, 1)), crashed(1, { error: lost(90, 0), endedAt: 150 })]
  expect(findRootCause(outcomes)?.culprit.rank).toBe(1)
})

it('is no victim that crashed while it was going down', () => {
  const outcomes = [
    killed(0, 'SIGABRT', 200, { error: lost(100, 1) }),
    exited(1, 3, { endedAt: 250 }),
  ]
  expect(findRootCause(outcomes)?.culprit.rank).toBe(1)
})

it('is a rank that was stopped while it was dying of its own error, before mere victims', () => {
  const dying = stopped(1, { error: errorReport({ at: 90 }), stoppedAt: 120 })
  expect(findRootCause([died(0, lost(100, 1)), dying])?.culprit.rank).toBe(1)
})

it('is no rank that threw only because it was stopped', () => {
  const untidy = stopped(1, {
    exitCode: 1,
    signal: null,
    error: errorReport({ at: 130 }),
    stoppedAt: 120,
  })
  expect(findRootCause([untidy, exited(0, 3, { endedAt: 110 })])?.culprit.rank).toBe(0)
})

it('is the rank that left early, with the code of the one that missed it', () => {
  const cause = findRootCause([died(0, left(100, 2)), stopped(1), exited(2, 0, { endedAt: 50 })])!
  expect(cause).toMatchObject({ culprit: { rank: 2 }, witness: { rank: 0 } })
  expect(exitCodeOf(cause)).toBe(1)
})

it('is the rank that left early, also when it was stopped before its process had ended', () => {
  const cause = findRootCause([died(0, left(100, 1)), stopped(1), stopped(2)])!
  expect(cause).toMatchObject({ culprit: { rank: 1 }, witness: { rank: 0 }, presumed: false })
  expect(exitCodeOf(cause)).toBe(1)
})

it('is presumed where only consequences are known', () => {
  expect(findRootCause([died(0, lost(100, 9)), died(1, lost(90, 9))])).toMatchObject({
    culprit: { rank: 1 },
    presumed: true,
  })
})

it('is a rank that another process kills just when it is to be stopped', () => {
  const killedMeanwhile = stopped(1, { signal: 'SIGKILL', stopSignal: 'SIGTERM', stoppedAt: 120 })
  expect(findRootCause([died(0, lost(100, 1)), killedMeanwhile])?.culprit.rank).toBe(1)
})
