import { allowedCores, currentCore, moveToCore, stayOnCores } from '@tsrun/native'
import { describeNative } from './support.ts'

describeNative('the cores of a thread', () => {
  it('include the core that the thread runs on', () => {
    expect(allowedCores()).toContain(currentCore())
  })

  it('stay the same when the thread moves to one of them', () => {
    const before = allowedCores()
    for (const core of before) expect(moveToCore(core)).toBe(true)
    expect(allowedCores()).toEqual(before)
  })

  it.each([NaN, -1, 1.5, 1e9])('does not restrict the process to the core %d', (core) => {
    const before = allowedCores()
    expect(stayOnCores([core])).toBe(false)
    expect(allowedCores()).toEqual(before)
  })

  it('stay the same when the thread may not run on the requested core', () => {
    const before = allowedCores()
    expect(moveToCore(8191)).toBe(false)
    expect(allowedCores()).toEqual(before)
  })
})
