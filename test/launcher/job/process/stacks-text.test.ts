import type { RankStatus } from '@tsrun/distributed/record'
import { stacksText, type RankStack } from '../../../internals/launcher/report.ts'

const stack = (rank: number, frames: string): RankStack => ({
  ...{ rank, pid: 100 + rank, isNode: true, fate: undefined },
  report: { stack: `Error\n${frames}` },
})

it('shows a stack of several ranks once, below all their names', () => {
  const here = '    at train (/train.mjs:3:9)'
  expect(
    stacksText([stack(0, here), stack(1, '    at load (/data.mjs:1:1)'), stack(2, here)], []),
  ).toBe(
    'rank 0 (pid 100)\nrank 2 (pid 102)\n    at train (/train.mjs:3:9)\n' +
      'rank 1 (pid 101)\n    at load (/data.mjs:1:1)\n',
  )
})

it('shows the last operation of a dead rank instead of a stack', () => {
  const status: RankStatus = {
    ...{ rank: 1, pid: 101, state: 'operation', end: 'died', since: 0, waitsFor: [0], running: 1 },
    ...{ operation: 'barrier', group: 'world', sequence: 3, bytes: 0, ended: 2, links: [] },
    ...{ step: undefined, loss: undefined, steps: 0, ownTime: 0, waitTime: 0 },
    ...{ operationTime: 0, operationBytes: 0 },
  }
  const dead = { ...stack(1, ''), fate: 'died', report: undefined } as const
  expect(stacksText([dead, { ...dead, rank: 2 }], [status])).toBe(
    'rank 1 (pid 101): died, in barrier #3 of world\nrank 2 (pid 101): died\n',
  )
})
