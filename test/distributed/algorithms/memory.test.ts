import { runWorld } from '@tsrun/distributed'

const MIB = 1024 * 1024

it('engine memory has room for several large all-reduces among many ranks of a host', async () => {
  const size = 9
  const hosts = Array.from({ length: size }, () => 0)
  const sums = await runWorld({ size, hosts, memory: 24 * MIB }, async (group) => {
    const buffers = [1, 2].map((factor) =>
      group.alloc('float32', 1_450_000).fill(factor * (group.rank + 1)),
    )
    await Promise.all(buffers.map((buffer) => group.allReduce(buffer, { algorithm: 'direct' })))
    return buffers.map((buffer) => [buffer[0], buffer.at(-1)])
  })
  for (const rank of sums) {
    expect(rank).toEqual([
      [45, 45],
      [90, 90],
    ])
  }
})
