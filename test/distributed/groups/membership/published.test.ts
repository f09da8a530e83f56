import { initProcessGroup } from '@tsrun/distributed'
import { memoryStore } from '@tsrun/store'
import { errorOf } from '../../support/outcome.ts'
import { SteppedWorld } from '../../support/stepped-world.ts'

const invalid = { code: 'ERR_TSR_MESSAGE_INVALID' }

describe('an invalid value that another program writes to the store', () => {
  it.each([
    ['a text that is not JSON', 'x'],
    ['null', 'null'],
    ['another object', '{"id":"1","order":"0, 1","first":0}'],
    ['an invalid id', '{"id":1e9,"order":"0, 1","first":0}'],
  ])('is rejected as a new group: %s', async (_, text) => {
    const world = new SteppedWorld(2)
    await world.store.set('group/0,1/0/', text)
    const error = await errorOf(() => world.groups[1]!.newGroup([0, 1]))
    expect(error).toMatchObject(invalid)
    expect(error?.message).toContain('it is not what rank 0 has to publish')
  })

  it.each([
    ['a text that is not JSON', 'x'],
    ['no survivors', '{"id":1}'],
    ['an unknown rank', '{"id":1,"survivors":[0,7]}'],
    ['another order', '{"id":1,"survivors":[1,0]}'],
    ['a rank twice', '{"id":1,"survivors":[0,0]}'],
    ['group 0, which is the world', '{"id":0,"survivors":[0,1]}'],
  ])('is rejected as the decision of a shrink: %s', async (_, text) => {
    const world = new SteppedWorld(2)
    await world.store.set('shrink/0/0/decision', text)
    const error = await errorOf(() => world.groups[0]!.shrink())
    expect(error).toMatchObject(invalid)
    expect(error?.message).toContain('a rank that decides on a shrink')
  })

  it.each([
    ['a text that is not JSON', 'x'],
    ['null', 'null'],
    ['an unknown rank', '{"rank":7,"gone":[]}'],
    ['an invalid list', '{"rank":1,"gone":{"length":1}}'],
    ['an invalid lost rank', '{"rank":1,"gone":[-1]}'],
  ])('is rejected as a vote: %s', async (_, text) => {
    const world = new SteppedWorld(2)
    await world.store.append('shrink/0/0/votes', `${text}\n`)
    const error = await errorOf(() => world.groups[0]!.shrink())
    expect(error).toMatchObject(invalid)
    expect(error?.message).toContain('a rank that votes on a shrink')
  })

  it.each(['', 'x', '-1', '0.5', '{}'])('is rejected as a generation: %j', async (text) => {
    const store = memoryStore()
    await store.set('world/0/generation', text)
    const error = await errorOf(() => initProcessGroup({ store, rank: 0, worldSize: 1 }))
    expect(error).toMatchObject(invalid)
    expect(error?.message).toContain('a rank that begins a generation of the world')
  })
})

describe('split', () => {
  it.each([null, 1, 'red', [1], [1, 2, 3], ['red', 0], [0, 0.5], { 0: 1, 1: 2, length: 2 }])(
    'rejects %j as the colour and key of another rank',
    async (value) => {
      const world = new SteppedWorld(2)
      const [a, b] = world.groups
      const other = b!.allGatherObject<unknown>(value)
      const failed = errorOf(() => a!.split(0))
      const [error] = await world.finish<unknown>([failed, other])
      expect(error).toMatchObject(invalid)
      expect(String(error)).toContain('rank 1 of a group that is split')
    },
  )
})
