import { tsrun } from '../launcher/support/tsrun.ts'

const outputOf = async (how: string, ranks = 2): Promise<string> => {
  const { code, stdout, stderr } = await tsrun(['--nproc', String(ranks), 'not-awaited.mjs', how])
  return `${code}\n${stdout}${stderr}`
}

it.each([1, 2])(
  'an all-reduce that nobody awaits is reported with its line (%d ranks)',
  async (ranks) => {
    const output = await outputOf('read', ranks)
    expect(output).toMatch(/^1\n/)
    expect(output).toMatch(/allReduce float32\[4\] of group world was never awaited.*NOT_AWAITED/)
    expect(output).toContain('not-awaited.mjs:17:')
  },
)

it('a collective that fails while nobody awaits it is reported', async () => {
  const output = await outputOf('fails')
  expect(output).toMatch(/^1\n/)
  expect(output).toContain('ERR_TSR_MISMATCH')
  expect(output).toContain('not-awaited.mjs:17:')
})

it('the error of the script is reported before a collective that it left', async () => {
  const output = await outputOf('thrown')
  expect(output).toMatch(/^error {8}Error: the reason$/m)
})

it('operations count as awaited by await, wait(), a poll and the synchronous form', async () => {
  expect(await outputOf('all ways')).toMatch(/^0\n/)
})
