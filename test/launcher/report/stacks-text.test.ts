import { stacksText, type RankStack } from '../../../packages/launcher/src/report/stacks-text.ts'

const stack = (rank: number, frames: string): RankStack => ({
  ...{ rank, pid: 100 + rank, isNode: true },
  report: { stack: `Error\n${frames}` },
})

it('shows a stack that several ranks have once, below the names of all of them', () => {
  const here = '    at train (/train.mjs:3:9)'
  expect(
    stacksText([stack(0, here), stack(1, '    at load (/data.mjs:1:1)'), stack(2, here)], []),
  ).toBe(
    'rank 0 (pid 100)\nrank 2 (pid 102)\n    at train (/train.mjs:3:9)\n' +
      'rank 1 (pid 101)\n    at load (/data.mjs:1:1)\n',
  )
})
