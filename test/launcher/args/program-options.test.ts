import {
  toProgram,
  splitWords,
  completeSettings,
  readSettings,
  type ProgramOptions,
  type FlagValues,
} from '../../internals/launcher/args.ts'
import { parse } from '../../internals/launcher/commands.ts'

const read = (values: FlagValues): ProgramOptions => {
  const settings = completeSettings(values, {})
  return toProgram(readSettings(settings), settings, ['train.ts'], 4)
}

it.each([
  ['--a --b=1', ['--a', '--b=1']],
  ["--title='a b' \t --x", ['--title=a b', '--x']],
  [String.raw`--a="b \"c\" d" e\ f`, ['--a=b "c" d', 'e f']],
  [`--a="b 'c' d"e f`, [`--a=b 'c' de`, 'f']],
  ["--a='' ''", ['--a=', '']],
  [String.raw`'a\b'`, [String.raw`a\b`]],
  ['', []],
  ["--a='b", undefined],
  ['--a "', undefined],
])('splits %s like a shell', (text, words) => {
  expect(splitWords(text)).toEqual(words)
})

it('accepts --node-args with a blank before its value, and does not touch the arguments of the script', async () => {
  const flags = ['--nproc', '2', '--node_args', '--x --y']
  const theirs = ['a.ts', '--node-args', '--x']
  expect(await parse([...flags, ...theirs])).toMatchObject({
    texts: { nproc: '2', 'node-args': '--x --y' },
    words: theirs,
  })
  await expect(parse(['--node-args'])).rejects.toThrow('--node-args needs a value')
  expect((await parse(['--', '--node-args', '--x'])).words).toEqual(['--node-args', '--x'])
})

it.each(['true', 'false'])('--no-python runs the program %s', async (program) => {
  const { texts, words } = await parse(['--no-python', program, 'x'])
  expect(texts).toEqual({ 'no-python': 'true' })
  expect(words).toEqual([program, 'x'])
})

it('--inspect determines where ranks listen for debuggers', () => {
  const loopback = { host: '127.0.0.1', rank: undefined }
  expect(read({}).inspect).toBeUndefined()
  expect(read({ inspect: '9229' }).inspect).toEqual({ ...loopback, port: 9229 })
  expect(read({ inspect: 'auto' }).inspect).toEqual({ ...loopback, port: undefined })
  expect(read({ inspect: '0.0.0.0:9300' }).inspect).toMatchObject({ host: '0.0.0.0', port: 9300 })
  expect(read({ inspect: '[::1]:auto' }).inspect).toMatchObject({ host: '[::1]', port: undefined })
  expect(read({ 'inspect-rank': '3' }).inspect).toEqual({ ...loopback, port: 9229, rank: 3 })
  expect(read({ 'inspect-rank': '3', inspect: 'auto' }).inspect).toMatchObject({ rank: 3 })
  // The ports of four ranks are counted up.
  expect(read({ inspect: '65532' }).inspect?.port).toBe(65_532)
  expect(() => read({ inspect: '65533' })).toThrow('a port from 1 to 65532 or auto')
  for (const text of ['', 'x', '0', 'host:', '::1:9229']) {
    expect(() => read({ inspect: text || ' ' })).toThrow('--inspect is')
  }
})

it('refuses --node-args that are not options of Node, and flags of Node with --no-python', () => {
  expect(read({ 'node-args': '-r x.cjs --y' }).nodeArguments).toEqual(['-r', 'x.cjs', '--y'])
  expect(() => read({ 'node-args': 'train.ts --y' })).toThrow('begins with train.ts')
  expect(() => read({ 'node-args': "--a='" })).toThrow('with every quotation mark closed')
  const values = { 'node-args': '--x', inspect: 'auto', 'inspect-rank': '0' }
  for (const [name, value] of Object.entries({
    ...values,
    'cpu-prof': 'true',
    'heap-prof': 'true',
  })) {
    expect(() => read({ [name]: value, 'no-python': 'true' })).toThrow(
      `--${name} is for ranks that run Node; with --no-python they run any program`,
    )
  }
  expect(read({ 'no-python': 'true' })).toMatchObject({ nodeArguments: [], stdin: 0 })
})

it('--stdin determines which ranks get the standard input', () => {
  expect(['all', 'none', '3'].map((stdin) => read({ stdin }).stdin)).toEqual(['all', 'none', 3])
  expect(() => read({ stdin: 'some' })).toThrow('the number of a rank, all or none')
})

it('--cpu-prof and --heap-prof select the profiles to write', () => {
  expect(read({}).profiles).toEqual([])
  expect(read({ 'cpu-prof': 'true' }).profiles).toEqual(['cpu'])
  expect(read({ 'cpu-prof': 'true', 'heap-prof': 'true' }).profiles).toEqual(['cpu', 'heap'])
})
