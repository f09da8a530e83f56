import { allowedCores, currentCore, isAvailable, moveToCore } from '@tsrun/native'

const native = isAvailable()
const describeNative = native.available ? describe : describe.skip
const title = native.available ? '' : ` (skipped: ${native.reason})`

describeNative(`the cores of a thread${title}`, () => {
  it('are those that it runs on', () => {
    expect(allowedCores()).toContain(currentCore())
  })

  it('stay the same when it moves to one of them', () => {
    const before = allowedCores()
    for (const core of before) expect(moveToCore(core)).toBe(true)
    expect(allowedCores()).toEqual(before)
  })

  it('stay the same when it may not run on the one it should move to', () => {
    const before = allowedCores()
    expect(moveToCore(8191)).toBe(false)
    expect(allowedCores()).toEqual(before)
  })
})
