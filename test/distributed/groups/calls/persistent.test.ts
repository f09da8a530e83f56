import { runWorld, type ProcessGroup, type Work } from '@tsrun/distributed'
import { errorOf } from '../../support/outcome.ts'
import { SteppedWorld } from '../../support/stepped-world.ts'

/** Ranks that share memory, and ranks that do not: small and large buffers take other ways there. */
const layouts = [{ hosts: [0, 0, 0] }, { hosts: [0, 1, 2] }, { hosts: [0, 0, 1] }]
const lengths = [3, 6000]

describe('a prepared operation', () => {
  it.each(layouts)('gives the same results as a plain call in every run: %j', async ({ hosts }) => {
    await runWorld({ size: 3, hosts, seed: 4 }, async (group) => {
      const { rank, size } = group
      for (const length of lengths) {
        for (const isPlaced of [true, false]) {
          const make = (count: number): Float32Array =>
            isPlaced ? group.alloc('float32', count) : new Float32Array(count)
          const [whole, all, slice] = [make(length), make(size * length), make(length)]
          const sum = group.allReduceInit(whole)
          const scattered = group.reduceScatterInit(slice, all, { op: 'max' })
          const gathered = group.allGatherInit(all, slice)
          const spread = group.broadcastInit(whole, 1)
          const met = group.barrierInit()
          for (let run = 0; run < 3; run++) {
            whole.fill(rank + run)
            sum.start()
            await sum.done()
            expect(whole.every((value) => value === 3 + 3 * run)).toBe(true)
            all.forEach((_, i) => (all[i] = rank + run * Math.floor(i / length)))
            scattered.start()
            await scattered.done()
            expect(slice.every((value) => value === 2 + run * rank)).toBe(true)
            gathered.start()
            await gathered.done()
            expect(all.every((value, i) => value === 2 + run * Math.floor(i / length))).toBe(true)
            whole.fill(rank === 1 ? run : -1)
            spread.start()
            await spread.done()
            expect(whole.every((value) => value === run)).toBe(true)
            met.start()
            await met.done()
          }
          for (const each of [sum, scattered, gathered, spread, met]) each.free()
          if (isPlaced) for (const buffer of [whole, all, slice]) group.free(buffer)
        }
      }
    })
  })

  it('starts and ends with run(), or with start() and done()', async () => {
    for (const { hosts } of layouts) {
      await runWorld({ size: 3, hosts, seed: 5 }, async (group) => {
        const buffer = group.alloc('float32', 6000)
        const sum = group.allReduceInit(buffer)
        for (let run = 0; run < 6; run++) {
          buffer.fill(group.rank + run)
          if ((run + group.rank) % 3 === 0) {
            sum.start()
            await sum.done()
          } else await sum.run()
          expect(buffer.every((value) => value === 3 + 3 * run)).toBe(true)
          expect(sum.isCompleted()).toBe(true)
        }
        sum.free()
        await expect(sum.run()).rejects.toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
      })
    }
  })

  it('allows getters of its options to prepare and start other operations', async () => {
    await runWorld({ size: 1 }, async (group) => {
      let met: Work | undefined
      const sum = group.allReduceInit(new Float32Array(1), {
        get op(): 'sum' {
          group.barrierInit().free()
          return 'sum'
        },
        get timeout(): number {
          met ??= group.barrier()
          return 1000
        },
      })
      expect(met!.sequence).toBe(0)
      await met
      await sum.run()
      sum.free()
    })
  })

  it('matches a plain call on another rank', async () => {
    await runWorld({ size: 2, hosts: [0, 0] }, async (group) => {
      const buffer = group.alloc('float64', 4000)
      const sum = group.allReduceInit(buffer)
      for (let run = 0; run < 6; run++) {
        buffer.fill(run)
        if ((run + group.rank) % 2 === 0) {
          sum.start()
          await sum.done()
        } else await group.allReduce(buffer)
        expect(buffer.every((value) => value === 2 * run)).toBe(true)
      }
    })
  })

  it('sends and receives repeatedly, among plain messages with the same tag', async () => {
    await runWorld({ size: 2, seed: 2 }, async (group) => {
      const buffer = group.alloc('int32', 5000)
      const tag = 7
      if (group.rank === 0) {
        const sent = group.sendInit(buffer, 1, { tag })
        for (let run = 0; run < 5; run++) {
          buffer.fill(run)
          sent.start()
          await sent.done()
          await group.send(Int32Array.of(run), 1, { tag })
        }
      } else {
        const received = group.recvInit(buffer, 0, { tag })
        const one = new Int32Array(1)
        for (let run = 0; run < 5; run++) {
          received.start()
          await received.done()
          expect(buffer.every((value) => value === run)).toBe(true)
          await group.recv(one, 0, { tag })
          expect(one[0]).toBe(run)
        }
      }
    })
  })

  it('reads its input again in each run, and does not change it', async () => {
    await runWorld({ size: 2, hosts: [0, 0] }, async (group) => {
      const [input, output] = [group.alloc('float32', 8000), group.alloc('float32', 4000)]
      const sum = group.reduceScatterInit(output, input, { op: 'avg' })
      for (let run = 1; run <= 3; run++) {
        input.fill(run)
        sum.start()
        await sum.done()
        expect(output.every((value) => value === run)).toBe(true)
        expect(input.every((value) => value === run)).toBe(true)
      }
    })
  })

  it('starts in the order of the calls while other operations are in progress', async () => {
    await runWorld({ size: 3, hosts: [0, 0, 0], seed: 9 }, async (group) => {
      const buffers = Array.from({ length: 6 }, (_, i) => group.alloc('float32', 10 ** (i % 5)))
      const prepared = buffers.map((buffer) => group.allReduceInit(buffer))
      for (let run = 0; run < 3; run++) {
        for (const buffer of buffers) buffer.fill(run + group.rank)
        for (const each of prepared) each.start()
        const called = group.allReduce(new Float32Array(20_000))
        for (const each of prepared.toReversed()) await each.done()
        await called
        for (const buffer of buffers) expect(buffer[0]).toBe(3 * run + 3)
      }
    })
  })

  it('refuses to start while it runs or after free(), and refuses free() while it runs', async () => {
    const world = new SteppedWorld(2)
    const [a, b] = world.groups
    const [first, second] = [a!, b!].map((group) => group.allReduceInit(group.alloc('int32', 4)))
    first!.start()
    expect(first!.isCompleted()).toBe(false)
    expect(() => {
      first!.start()
    }).toThrow('the prepared allReduce')
    expect(() => {
      first!.free()
    }).toThrow('under way')
    second!.start()
    await world.finish([first!.done(), second!.done()])
    expect(first!.isCompleted()).toBe(true)
    await first!.done()
    first!.free()
    first!.free()
    expect(() => {
      first!.start()
    }).toThrow('free()')
  })

  it('fails if the calls of ranks differ, names the difference, and cannot start again', async () => {
    await runWorld({ size: 2, hosts: [0, 0] }, async (group) => {
      const buffer = group.alloc('float32', 10 + group.rank)
      const sum = group.allReduceInit(buffer, { label: 'weights' })
      sum.start()
      const error = await errorOf(() => sum.done())
      expect(error).toMatchObject({ code: 'ERR_TSR_MISMATCH' })
      expect(error?.message).toContain('weights: ')
      await sum.done()
      sum.start()
      expect((await errorOf(() => sum.done()))?.code).toMatch(/MISMATCH|GROUP_FAILED|PEER_FAILED/)
      sum.free()
    })
  })

  it('reports a mismatch with the operations of other ranks by its next run at the latest', async () => {
    const errors = await runWorld({ size: 3, hosts: [0, 0, 0] }, async (group) => {
      const buffer = group.alloc('float32', 4)
      const spread = group.broadcastInit(buffer, 0)
      for (let run = 0; run < 3; run++) {
        // neither the root nor rank 1 reads what rank 2 publishes
        if (run === 1 && group.rank === 2) {
          await group.reduce(buffer, 0)
          continue
        }
        spread.start()
        const error = await errorOf(() => spread.done())
        if (error !== undefined) return error.code
      }
      return (await errorOf(() => group.barrier()))?.code
    })
    expect(errors).toContain('ERR_TSR_MISMATCH')
  })

  it('throws an error that was not awaited at its next start', async () => {
    await runWorld({ size: 2, hosts: [0, 0] }, async (group) => {
      const sum = group.allReduceInit(group.alloc('float32', 10 + group.rank))
      sum.start()
      while (!sum.isCompleted()) await new Promise((resolve) => setImmediate(resolve))
      expect(() => {
        sum.start()
      }).toThrow('ERR_TSR_MISMATCH')
    })
  })

  it('ends at its time-out or when its signal is aborted', async () => {
    await runWorld({ size: 2 }, async (world) => {
      const groups: ProcessGroup[] = []
      for (let i = 0; i < 2; i++) groups.push(await world.newGroup([0, 1]))
      if (world.rank === 1) return
      const controller = new AbortController()
      const aborted = groups[0]!.barrierInit({ signal: controller.signal })
      aborted.start()
      controller.abort()
      const late = groups[1]!.barrierInit({ timeout: 20 })
      late.start()
      const codes = [await errorOf(() => aborted.done()), await errorOf(() => late.done())]
      expect(codes.map((error) => error?.code)).toEqual([
        'ERR_TSR_OPERATION_ABORTED',
        'ERR_TSR_OPERATION_TIMEOUT',
      ])
    })
  })

  it('ends with its group', async () => {
    await runWorld({ size: 2 }, async (world) => {
      const buffer = new Float32Array(1)
      const group = await world.newGroup([0, 1])
      const sum = group.allReduceInit(buffer)
      sum.start()
      await group.destroy()
      expect(sum.isCompleted()).toBe(true)
      expect(() => {
        sum.start()
      }).toThrow('ERR_TSR_GROUP_DESTROYED')
      expect(() => group.allReduceInit(buffer)).toThrow('ERR_TSR_GROUP_DESTROYED')
    })
  })
})
