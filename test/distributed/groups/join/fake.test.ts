import {
  allReduceSync,
  destroyProcessGroup,
  initDeviceMesh,
  initProcessGroup,
  type ProcessGroup,
} from '@tsrun/distributed'

const arena = 4 * 1024 * 1024
const [rank, worldSize] = [1, 3]
let group: ProcessGroup

beforeEach(async () => {
  group = await initProcessGroup({ transport: 'fake', rank, worldSize, arena })
})

afterEach(async () => {
  await destroyProcessGroup()
})

const own = (): Float32Array => Float32Array.of(2, -3)
const zeros = (length: number): Float32Array => new Float32Array(length).fill(7)

describe('in a world with the transport fake', () => {
  it.each([
    ['sum', [6, -9]],
    ['avg', [2, -3]],
    ['product', [8, -27]],
    ['max', [2, -3]],
  ] as const)('reductions combine the values of this rank with themselves: %j', async (op, sum) => {
    const buffer = own()
    await group.allReduce(buffer, { op })
    expect([...buffer]).toEqual(sum)
    const root = own()
    await group.reduce(root, rank, { op })
    expect([...root]).toEqual(sum)
    const output = zeros(2)
    await group.reduceScatter(output, Float32Array.of(9, 9, 2, -3, 9, 9), { op })
    expect([...output]).toEqual(sum)
    const [first, second] = [own(), own()]
    await group.allReduceCoalesced([first, second], { op })
    expect([...first, ...second]).toEqual([...sum, ...sum])
  })

  it('a reduction of a large buffer is in place and exact', () => {
    const buffer = group.alloc('float32', 100_000)
    for (let i = 0; i < buffer.length; i++) buffer[i] = i
    allReduceSync(buffer)
    expect(buffer.every((value, i) => value === 3 * i)).toBe(true)
    group.free(buffer)
  })

  it('other ranks send what this rank sends', async () => {
    const all = zeros(6)
    await group.allGather(all, own())
    expect([...all]).toEqual([2, -3, 2, -3, 2, -3])
    const uneven = zeros(6)
    await group.allGatherV(uneven, own(), [1, 2, 3])
    expect([...uneven]).toEqual([2, 2, -3, 2, -3, 0])
    const gathered = zeros(6)
    await group.gather(gathered, own(), rank)
    expect([...gathered]).toEqual([2, -3, 2, -3, 2, -3])
    await group.gather(null, own(), 0)
    const exchanged = zeros(6)
    await group.allToAll(exchanged, Float32Array.of(9, 9, 2, -3, 9, 9))
    expect([...exchanged]).toEqual([2, -3, 2, -3, 2, -3])
    const scattered = zeros(2)
    await group.scatter(scattered, Float32Array.of(9, 9, 2, -3, 9, 9), rank)
    expect([...scattered]).toEqual([2, -3])
  })

  it('a receive and a scatter from another rank give zeros; a broadcast changes nothing', async () => {
    const [received, scattered, broadcast] = [zeros(2), zeros(2), own()]
    await group.send(own(), 2)
    expect(await group.recv(received, 0)).toBe(0)
    expect(await group.recv(received, 'any')).toBe(2)
    await group.scatter(scattered, null, 0)
    await group.broadcast(broadcast, 0)
    await group.barrier()
    await group.monitoredBarrier()
    expect([...received, ...scattered, ...broadcast]).toEqual([0, 0, 0, 0, 2, -3])
  })

  it('a prepared operation runs again and again', async () => {
    const buffer = group.alloc('int32', 1)
    const sum = group.allReduceInit(buffer)
    const outside = new Int32Array(1)
    const broadcast = group.broadcastInit(outside, 0)
    for (const value of [1, 2]) {
      outside[0] = buffer[0] = value
      await sum.run()
      await broadcast.run()
      expect([buffer[0], outside[0]]).toEqual([3 * value, value])
    }
    sum.free()
    broadcast.free()
    group.free(buffer)
  })

  it('objects of other ranks equal those of this rank', async () => {
    expect(await group.allGatherObject({ a: 1 })).toEqual([{ a: 1 }, { a: 1 }, { a: 1 }])
    expect(await group.gatherObject('x', 0)).toBeUndefined()
    expect(await group.broadcastObject({ b: 2 }, 0)).toEqual({ b: 2 })
    expect(await group.gatherObject('x', rank)).toEqual(['x', 'x', 'x'])
    expect(await group.scatterObject([0, 'mine', 2], rank)).toBe('mine')
    await group.sendObject('dropped', 0)
    expect(await group.recvObject(0)).toBeUndefined()
    expect(await group.scatterObject(null, 0)).toBeUndefined()
  })

  it('groups and meshes need no other rank', async () => {
    const mesh = await initDeviceMesh({ dp: 1, tp: 3 })
    const buffer = own()
    await mesh.tp.allReduce(buffer)
    await mesh.dp.allReduce(buffer)
    expect([...buffer]).toEqual([6, -9])
    const half = await group.split(0)
    expect(half?.ranks).toEqual([0, 1, 2])
  })
})
