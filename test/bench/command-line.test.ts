import { jest } from '@jest/globals'
import { bench } from './support/bench.ts'

jest.setTimeout(60_000)

it('says what it can do', async () => {
  const { code, stdout } = await bench(['--help'])
  expect(code).toBe(0)
  for (const name of ['collectives', 'schedules', 'launcher']) {
    expect(stdout).toContain(name)
    const help = await bench([name, '--help'])
    expect(help).toMatchObject({ code: 0, stderr: '' })
    expect(help.stdout).toContain('--json')
  }
})

it.each([
  [[], /which command\?/],
  [['colectives'], /unknown command "colectives"; did you mean collectives\?/],
  [['zzz'], /unknown command "zzz"$/m],
  [['constructor'], /unknown command "constructor"/],
  [['collectives', '--rank', '4'], /unknown option --rank; did you mean --ranks\?/],
  [['collectives', '--ranks'], /--ranks needs a value: --ranks <n>/],
  [['collectives', '--ranks', '1'], /--ranks must be an integer from 2 to 64, not "1"/],
  [['collectives', '--ops', 'allreduce'], /--ops: unknown "allreduce"; did you mean allReduce\?/],
  [['collectives', '--peers', 'nccl'], /--peers: unknown "nccl"; choose from torch, openmpi/],
  [['collectives', '--sizes', '4parsec'], /"4parsec" is not a size/],
  [['collectives', '--sizes', '2GiB'], /at most 256MiB/],
  [['collectives', '--json=yes'], /--json takes no value/],
  [['collectives', 'fast'], /unexpected "fast"/],
  [
    ['collectives', '--transport', 'node', '--engine', 'inline'],
    /node transport runs with the worker/,
  ],
  [['launcher', '--runs', 'many'], /--runs must be an integer from 1 to 100, not "many"/],
])('refuses %j with exit code 2', async (args, message) => {
  const { code, stdout, stderr } = await bench(args)
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
  expect(stderr).toMatch(message)
})
