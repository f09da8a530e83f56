import { createStoreData } from '../internals/store.ts'

const KiB = 1024
const bytes = (kibibytes: number): Uint8Array => new Uint8Array(kibibytes * KiB)

describe('the values in the memory of a store', () => {
  it('share one memory limit between keys and queues', () => {
    const data = createStoreData(100 * KiB)
    data.set('a', bytes(50))
    data.queues.push('q', bytes(40))
    const refused = expect.objectContaining({ code: 'ERR_TSR_STORE_LIMIT' }) as Error
    for (const write of [
      () => data.queues.push('q', bytes(10)),
      () => (data.set('b', bytes(10)), 0),
      () => data.append('a', bytes(10)),
    ]) {
      expect(write).toThrow(refused)
    }
    expect([data.value('b'), data.value('a')!.byteLength]).toEqual([undefined, 50 * KiB])
  })

  it('free their memory when they are deleted, taken or replaced', () => {
    const data = createStoreData(100 * KiB)
    for (let i = 0; i < 50; i++) {
      data.set('a', bytes(60))
      data.queues.push('q', bytes(30))
      data.queues.forget('q', data.queues.take('q')!)
      if (i % 2 === 0) data.delete('a')
    }
    data.clear()
    data.set('whole', bytes(99))
  })

  it('count towards the memory limit even if they are empty', () => {
    const data = createStoreData(100 * KiB)
    expect(() => {
      for (let i = 0; i < 1000; i++) data.set(`key ${i}`, bytes(0))
    }).toThrow('What the store would hold')
  })
})
