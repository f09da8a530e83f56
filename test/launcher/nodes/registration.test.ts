import { findMismatch, findUnreachable, type NumberedNode } from '../../internals/launcher/nodes.ts'

function node(nodeRank: number, facts: Partial<NumberedNode> = {}): NumberedNode {
  return {
    nodeRank,
    nnodes: 3,
    minNodes: 3,
    nproc: 2,
    host: `h${nodeRank}`,
    pid: 100 + nodeRank,
    identity: `boot${nodeRank}`,
    address: `10.0.0.${nodeRank + 1}`,
    role: 'default',
    rdzvId: undefined,
    version: '1.0.0',
    script: '/train.ts',
    digest: 'ab'.repeat(32),
    ...facts,
  }
}

const zero = node(0)
const joined = new Map([
  [0, zero],
  [1, node(1)],
])

it('registration accepts any number of ranks and any path of the script', () => {
  const newcomer = node(2, { nproc: 7, script: '/elsewhere/train.ts' })
  expect(findMismatch(newcomer, zero, joined)).toBeUndefined()
})

it.each<[Partial<NumberedNode>, string]>([
  [
    { nodeRank: 1, host: 'h9', address: '10.0.0.9', pid: 7 },
    'host h9, 10.0.0.9, process 7 and host h1, 10.0.0.2, process 101 are both node 1',
  ],
  [{ nodeRank: 0 }, 'are both node 0'],
  [{ nnodes: 4, minNodes: 4 }, 'was started with --nnodes 4, and node 0 (h0) with 3'],
  [{ rdzvId: 'mine' }, 'was started with --rdzv-id mine, and node 0 (h0) with none'],
  [{ minNodes: 2 }, 'was started with --nnodes 2:3, and node 0 (h0) with 3'],
  [{ version: '1.0.1' }, 'was started with tsrun 1.0.1, and node 0 (h0) with 1.0.0'],
  [
    { digest: 'cd'.repeat(32), script: '/old/train.ts' },
    'has a different script (/old/train.ts, SHA-256 cdcdcdcd…) from node 0 (/train.ts, abababab…)',
  ],
])('registration refuses a node with %j', (facts, problem) => {
  expect(findMismatch(node(2, facts), zero, joined)).toContain(problem)
})

it('registration finds the node that other hosts cannot reach', () => {
  const local = node(1, { address: '127.0.1.1' })
  expect(findUnreachable([zero, local])).toBe(local)
  expect(findUnreachable([zero, node(1)])).toBeUndefined()
  const same = [0, 1].map((rank) => node(rank, { identity: 'boot', address: '127.0.0.1' }))
  expect(findUnreachable(same)).toBeUndefined()
})
