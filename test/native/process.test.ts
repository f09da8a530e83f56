import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { describeNative, fixture, fixtureFlags } from './support.ts'

describeNative('the parent-death signal', () => {
  let parent: ReturnType<typeof spawn> | undefined
  afterEach(() => {
    parent?.kill('SIGKILL')
  })

  it('ends a process whose parent was killed', async () => {
    parent = spawn(process.execPath, [...fixtureFlags, fixture('orphan.ts')], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const [pid] = (await once(parent.stdout!, 'data')) as [Buffer]
    expect(Number(pid.toString())).toBeGreaterThan(1)
    const exit = once(parent, 'exit')
    // Both hold the pipe, so its end means that neither is left.
    const end = once(parent.stdout!.resume(), 'end')
    parent.kill('SIGKILL')
    expect(await exit).toEqual([null, 'SIGKILL'])
    await end
  }, 60_000)
})
