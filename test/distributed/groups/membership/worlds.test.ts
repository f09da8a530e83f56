import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import {
  defaultGroup,
  destroyProcessGroup,
  initProcessGroup,
  isInitialized,
  runWorld,
  type ProcessGroup,
} from '@tsrun/distributed'
import { isAvailable } from '@tsrun/native'
import { memoryStore } from '@tsrun/store'
import { eventually } from '../../support/outcome.ts'
import { joinWorld, type EngineProcessGroup } from '../../../internals/distributed/groups.ts'

const transport = isAvailable().available ? 'tcp' : 'node'

/** Joins all ranks of a world from this process. */
async function joinAll(size: number): Promise<EngineProcessGroup[]> {
  const store = memoryStore()
  return await Promise.all(
    Array.from({ length: size }, async (_, rank) => {
      const place = { rank, worldSize: size, store }
      return await joinWorld({ ...place, engine: 'worker', transport, arena: 4 * 1024 * 1024 })
    }),
  )
}

/** The sum of the ranks, and of 100 for each, over the odd and the even ranks of a world. */
async function sumOfHalf(world: ProcessGroup): Promise<number> {
  const half = await world.split(world.rank % 2)
  const buffer = Int32Array.of(100 + world.rank)
  await half!.allReduce(buffer)
  return buffer[0]!
}

describe('several worlds in one process', () => {
  it('have separate groups, ids and generations, and can be destroyed separately', async () => {
    const [two, three] = await Promise.all([joinAll(2), joinAll(3)])
    const sums = await Promise.all([...two, ...three].map(sumOfHalf))
    expect(sums).toEqual([100, 101, 202, 101, 202])
    // the same names and numbers in both worlds
    const pairs = await Promise.all(
      [two[0]!, two[1]!, three[0]!, three[1]!].map(
        async (world) => await world.newGroup([0, 1], { name: 'pair' }),
      ),
    )
    const words = await Promise.all(
      pairs.map(async (pair, i) => await pair.allGatherObject(`${i} of ${pair.size}`)),
    )
    expect(words).toEqual([
      ['0 of 2', '1 of 2'],
      ['0 of 2', '1 of 2'],
      ['2 of 2', '3 of 2'],
      ['2 of 2', '3 of 2'],
    ])
    await Promise.all(two.map((world) => world.destroy()))
    expect(two.map(({ world }) => world.hasEnded)).toEqual([true, true])
    expect(three.map(({ world }) => world.hasEnded)).toEqual([false, false, false])
    const gathered = await Promise.all(three.map((world) => world.allGatherObject(world.rank)))
    expect(gathered).toEqual([
      [0, 1, 2],
      [0, 1, 2],
      [0, 1, 2],
    ])
    await Promise.all(three.map((world) => world.destroy()))
  })

  it('do not affect the default group', async () => {
    const others = await joinAll(2)
    expect(isInitialized()).toBe(false)
    const own = await initProcessGroup({ arena: 4 * 1024 * 1024 })
    await Promise.all(others.map((world) => world.destroy()))
    expect(isInitialized()).toBe(true)
    expect(await own.allGatherObject('alone')).toEqual(['alone'])
    await own.destroy()
    expect(isInitialized()).toBe(false)
  })

  it('can be reconfigured separately', async () => {
    const [two, three] = await Promise.all([joinAll(2), joinAll(3)])
    const again = await Promise.all(two.map((world) => world.reconfigure()))
    expect(again.map(({ generation }) => generation)).toEqual([1, 1])
    expect(three.map(({ generation }) => generation)).toEqual([0, 0, 0])
    const sums = await Promise.all([...again, ...three].map(sumOfHalf))
    expect(sums).toEqual([100, 101, 202, 101, 202])
    await Promise.all([...again, ...three].map((world) => world.destroy()))
  })

  it('run side by side in one thread', async () => {
    const run = async (size: number): Promise<number[]> =>
      await runWorld({ size, seed: size }, async (world) => {
        const left = world.rank === 0 ? undefined : await world.shrink({ timeout: 200 })
        if (world.rank === 0) await world.destroy()
        return left === undefined ? 0 : await sumOfHalf(left)
      })
    const [first, second] = await Promise.all([run(3), run(4)])
    expect(first).toEqual([0, 100, 101])
    expect(second).toEqual([0, 202, 101, 202])
  })
})

it('a world that was left is not kept in memory', async () => {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const place = { rank: 0, worldSize: 1, arena: 4 * 1024 * 1024 }
  const left = new WeakRef(await initProcessGroup({ ...place, store: memoryStore() }))
  await destroyProcessGroup()
  await eventually(() => {
    collect()
    return left.deref() === undefined
  })
  expect(isInitialized()).toBe(false)
})

it('a world keeps only its newest successor in memory', async () => {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const place = { rank: 0, worldSize: 1, arena: 4 * 1024 * 1024 }
  const first = await initProcessGroup({ ...place, store: memoryStore() })
  const second = new WeakRef(await first.reconfigure())
  const third = await defaultGroup().reconfigure()
  expect(third.generation).toBe(2)
  expect(defaultGroup()).toBe(third)
  await eventually(() => {
    collect()
    return second.deref() === undefined
  })
  expect(first.generation).toBe(0)
  await destroyProcessGroup()
  expect(isInitialized()).toBe(false)
})
