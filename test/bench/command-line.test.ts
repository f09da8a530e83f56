import { bench, benchHere } from './support/bench.ts'

it('bench --help lists all benchmarks, and each has its own help', async () => {
  const { code, stdout } = await bench(['--help'])
  expect(code).toBe(0)
  for (const name of ['collectives', 'schedules', 'launcher', 'join']) {
    expect(stdout).toContain(name)
    const help = await benchHere([name, '--help'])
    expect(help).toMatchObject({ code: 0, stderr: '' })
    expect(help.stdout).toContain('--json')
  }
})

it('bench exits with code 2 for an unknown command', async () => {
  const { code, stdout, stderr } = await bench(['colectives'])
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
  expect(stderr).toBe('bench: unknown command "colectives"; did you mean collectives?\n')
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
  [['join', '--ranks', '6', '--hosts', '4'], '6 ranks cannot be divided by 4'],
  [['flood', '--rate', '0'], '--rate must be an integer from 1 to 100000'],
  [['ping-pong', '--bytes', 'few'], '"few" is not a size'],
  [['kernels', '--sizes', '2GiB'], '--sizes: at most 1GiB'],
  [['generation', '--backends', 'wasn'], '--backends: unknown "wasn"; did you mean wasm?'],
  [['generation', '--heads', '3'], '--width must be a multiple of --heads'],
  [['checkpoint', '--size', 'few'], '"few" is not a size'],
  [['nodes', '--figure', 'stepMs'], '--command is missing'],
  [['nodes', '--command', 'steps'], '--figure is missing'],
  [['overlap', '--size', '3B'], '--size: float32, up to 512MiB'],
  [['memory', '--operations', '1'], '--operations must be an integer from 1000'],
  [['report', '--also', 'weather'], '--also: unknown "weather"'],
  [['tune', '--ops', 'barrier'], '--ops: unknown "barrier"'],
  [['tune', '--engine', 'worker,inline'], '--engine takes one name'],
  [['tune', '--sizes', '1GiB'], '--sizes: at most 64MiB'],
  [['tune', '--sizes', ''], '--sizes needs a value'],
  [['steps', '--backends', 'wasn'], '--backends: unknown "wasn"; did you mean wasm?'],
  [['steps', '--workloads', ''], '--workloads needs a value'],
  [['steps', '--peers', 'openmpi'], '--peers: unknown "openmpi"'],
  [['steps', '--runs', '0'], '--runs must be an integer from 1'],
  [['training', '--backends', 'wasn'], '--backends: unknown "wasn"; did you mean wasm?'],
  [['training', '--workloads', 'matmul-1024'], '--workloads: unknown "matmul-1024"'],
  [['training', '--ranks', '3'], '--ranks: unknown "3"'],
  [['training', '--link', 'fast'], '--link must be like 500mbit or 4gbit, not "fast"'],
  [['training', '--batch', 'all'], '--batch must be an integer from 8 to 65536, not "all"'],
  [['training', '--bucket', '0'], '--bucket must be an integer from 1'],
  [['training', '--repeats', '0'], '--repeats must be an integer from 1'],
  [['training', '--peers', 'openmpi'], '--peers: unknown "openmpi"'],
])('bench refuses %j with exit code 2', async (args, message) => {
  const { code, stdout, stderr } = await benchHere(args)
  expect({ code, stdout }).toEqual({ code: 2, stdout: '' })
  expect(stderr).toMatch(message)
})
