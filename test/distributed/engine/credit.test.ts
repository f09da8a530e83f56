import fc from 'fast-check'
import { Credit, HEADER_BYTES } from '../../internals/distributed/engine.ts'

const LIMIT = 256 * 1024

describe('the credit of a link', () => {
  it('bounds the bytes in flight and never runs dry', () => {
    const steps = fc.array(
      fc.oneof(
        fc.record({ send: fc.integer({ min: 0, max: 16_384 }) }),
        fc.record({ consume: fc.integer({ min: 1, max: 30 }) }),
      ),
      { maxLength: 400 },
    )
    fc.assert(
      fc.property(steps, (list) => {
        const [sender, receiver] = [new Credit(), new Credit()]
        const arrived: number[] = []
        const underWay = (): number =>
          arrived.reduce((sum, payload) => sum + payload + HEADER_BYTES, 0)
        for (const step of list) {
          if ('send' in step) {
            if (sender.trySpend(step.send)) arrived.push(step.send)
            // a receiver that has consumed all has told enough for one more
            else expect(arrived.length).toBeGreaterThan(0)
          } else {
            for (const payload of arrived.splice(0, step.consume)) {
              if (receiver.consume(payload)) sender.update(receiver.tell())
            }
          }
          expect(underWay()).toBeLessThanOrEqual(LIMIT)
        }
      }),
    )
  })

  it('counts beyond 2^32 bytes', () => {
    const [sender, receiver] = [new Credit(), new Credit()]
    const payload = 16_000
    const frames = Math.ceil((2 ** 32 + 10 * LIMIT) / (payload + HEADER_BYTES))
    let told = 0
    for (let i = 0; i < frames; i++) {
      if (!sender.trySpend(payload)) throw new Error(`no credit for frame ${i}`)
      if (receiver.consume(payload)) {
        sender.update(receiver.tell())
        told++
      }
    }
    expect(told).toBeGreaterThan(1000)
  })
})
