import { activityOf } from '@tsrun/distributed/record'

const running = { state: 'running', end: undefined, waitsFor: [] } as const

it.each([
  ['was not measured', undefined, 'running'],
  ['sleeps for most of its own time', 0.1, 'idle'],
  ['has a part of a core', 0.4, 'running'],
  ['computes for most of its own time', 0.7, 'computing'],
] as const)(
  'the activity of a rank outside of operations that %s is reported',
  (_, computing, expected) => {
    expect(activityOf(running, computing)).toBe(expected)
  },
)

it('only a rank outside of operations is reported as computing', () => {
  const operation = { ...running, state: 'operation' } as const
  expect(activityOf(operation, 1)).toBe('communicating')
  expect(activityOf({ ...operation, waitsFor: [2] }, 1)).toBe('waiting')
  expect(activityOf({ ...running, state: 'starting' }, 1)).toBe('starting')
  expect(activityOf({ ...running, state: 'left' }, 1)).toBe('left')
})

it('a rank whose process has ended is reported as ended or died, whatever its last state', () => {
  expect(activityOf({ state: 'operation', end: 'died', waitsFor: [2] }, 1)).toBe('died')
  expect(activityOf({ ...running, end: 'ended' }, 1)).toBe('ended')
})
