import { areTerminated, settle } from '../../../internals/launcher/job.ts'

type Rank = Parameters<typeof settle>[0][number]

function ended(exitCode: number | null, signal: NodeJS.Signals | null = null): Rank {
  const end = { at: 0, exitCode, signal }
  return { error: undefined, end, ended: Promise.resolve(end) }
}
const running: Rank = { error: undefined, end: undefined, ended: new Promise(() => undefined) }

it.each([
  ['by SIGTERM', [ended(null, 'SIGTERM')]],
  ['with the exit code of SIGTERM', [ended(143), ended(0)]],
  ['by SIGTERM, and another runs', [ended(null, 'SIGTERM'), running]],
])('waits for a signal to the launcher if a rank has ended %s', async (_, ranks) => {
  expect(areTerminated(ranks)).toBe(true)
  const cut = new AbortController()
  let isSettled = false
  const settled = settle(ranks, cut.signal, false).then(() => (isSettled = true))
  await new Promise(setImmediate)
  expect(isSettled).toBe(false)
  cut.abort()
  await settled
})

it.each([
  ['SIGKILL', [ended(null, 'SIGKILL')]],
  ['an exit code', [ended(1)]],
  ['an exit code, and another by SIGTERM', [ended(3), ended(null, 'SIGTERM')]],
])('does not wait if a rank has ended by %s', async (_, ranks) => {
  expect(areTerminated(ranks)).toBe(false)
  await settle(ranks, new AbortController().signal, false)
})
