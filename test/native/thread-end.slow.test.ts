import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { describeNative, fixture } from './support.ts'

describeNative('a thread that has loaded all native bindings', () => {
  it('can be terminated at any moment', async () => {
    const stdio = ['ignore', 'ignore', 'inherit'] as const
    const child = spawn(process.execPath, [fixture('ended-threads.mjs')], { stdio: [...stdio] })
    expect(await once(child, 'exit')).toEqual([0, null])
  }, 120_000)
})
