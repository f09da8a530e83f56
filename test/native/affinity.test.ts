import { allowedCores, currentCore, moveToCore } from '@tsrun/native'
import { describeNative } from './support.ts'

describeNative('the cores of a thread', () => {
  it('include the core that it runs on', () => {
    expect(allowedCores()).toContain(currentCore())
  })

  it('stay the same when it moves to one of them', () => {
    const before = allowedCores()
    for (const core of before) expect(moveToCore(core)).toBe(true)
    expect(allowedCores()).toEqual(before)
  })

  it('stay the same when it may not run on the requested core', () => {
    const before = allowedCores()
    expect(moveToCore(8191)).toBe(false)
    expect(allowedCores()).toEqual(before)
  })
})
