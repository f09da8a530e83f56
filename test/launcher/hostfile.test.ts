import { chooseHosts, parseHostfile } from '../internals/launcher/nodes.ts'

const text = `
# the first has the store
node0 slots=4
10.0.0.7 slots=2 user=me port=2222   # as mpirun's
node2
`
const hosts = parseHostfile(text, 'hosts')

it('reads a host file', () => {
  expect(hosts).toEqual([
    { name: 'node0', slots: 4, user: undefined, port: undefined },
    { name: '10.0.0.7', slots: 2, user: 'me', port: 2222 },
    { name: 'node2', slots: 1, user: undefined, port: undefined },
  ])
})

it.each([
  ['::1', { name: '::1', slots: 1 }],
  ['fd00::2 slots=2', { name: 'fd00::2', slots: 2 }],
  ['[fd00::2]', { name: 'fd00::2', slots: 1 }],
  ['[fd00::2]:2', { name: 'fd00::2', slots: 2 }],
  ['node1:4', { name: 'node1', slots: 4 }],
  ['me@node1:4 port = 22', { name: 'node1', slots: 4, user: 'me', port: 22 }],
  ['me@fd00::2', { name: 'fd00::2', user: 'me' }],
  ['node1 slots = 2 max_slots=4', { name: 'node1', slots: 2 }],
  ['node1 max-slots=4', { name: 'node1', slots: 1 }],
])('the line %j of a host file is understood', (text, host) => {
  expect(parseHostfile(text, 'hosts')).toEqual([expect.objectContaining(host)])
})

it('a host file may have a line of many blanks', () => {
  const blanks = ' '.repeat(500_000)
  expect(parseHostfile(`node1${blanks}slots=2${blanks}`, 'hosts')).toEqual([
    expect.objectContaining({ name: 'node1', slots: 2 }),
  ])
})

it.each([
  ['', 'hosts has no host'],
  ['a:0', 'hosts, line 1: slots is "0"; expected an integer from 1 to 4096'],
  ['a\n-oProxyCommand=x', 'hosts, line 2: -oProxyCommand=x is no name of a host'],
  ['a\na', 'hosts, line 2: a is there twice'],
  ['a slots=0', 'hosts, line 1: slots is "0"; expected an integer from 1 to 4096'],
  ['a slots=2 gpus=1', 'hosts, line 1: gpus=1; expected slots=N, user=NAME or port=N'],
  ['a user=-l', 'hosts, line 1: user=-l is no name of a user'],
  ['-l@a', 'hosts, line 1: user=-l is no name of a user'],
  ['me@-oProxyCommand=x', 'hosts, line 1: -oProxyCommand=x is no name of a host'],
  ['[]', 'hosts, line 1: [] is no name of a host'],
  ['a[b', 'hosts, line 1: a[b is no name of a host'],
])('the host file %j is refused', (text, problem) => {
  expect(() => parseHostfile(text, 'hosts')).toThrow(
    expect.objectContaining({ code: 'ERR_TSR_USAGE', message: expect.stringContaining(problem) }),
  )
})

it('selects hosts by name, in the order of the host file', () => {
  const names = (choice: Parameters<typeof chooseHosts>[1]): string[] =>
    chooseHosts(hosts, choice).map(({ name }) => name)
  expect(names({})).toEqual(['node0', '10.0.0.7', 'node2'])
  expect(names({ include: 'node2,node0' })).toEqual(['node0', 'node2'])
  expect(names({ exclude: 'node0' })).toEqual(['10.0.0.7', 'node2'])
  expect(names({ include: '10.0.0.7, node2' })).toEqual(['10.0.0.7', 'node2'])
  expect(() => names({ include: 'node0:2' })).toThrow(/--include names node0:2/)
  expect(() => names({ include: 'node0@node2' })).toThrow(/--include names node0@node2/)
  expect(() => names({ include: 'node3' })).toThrow(/--include names node3.*\(the nearest is node/)
  expect(() => names({ include: 'node0', exclude: 'node0' })).toThrow(/leave no host/)
})
