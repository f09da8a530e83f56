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
  })
})

describeNative('a process with closed standard streams', () => {
  it.each([['2'], ['1'], ['1', '2'], ['0', '1', '2'], ['0', '2']])(
    'exits normally: %s',
    async (...fds) => {
      const child = spawn(process.execPath, [fixture('closed-streams.mjs'), ...fds], {
        stdio: ['ignore', 'pipe', 'pipe'],
        timeout: 20_000,
      })
      expect(await once(child, 'exit')).toEqual([7, null])
    },
    60_000,
  )
})

describeNative('resource limits', () => {
  it('bound the number of open files and the size of a written file', async () => {
    const child = spawn(process.execPath, [fixture('limits.mjs')], {
      stdio: ['ignore', 'pipe', 'inherit'],
      timeout: 20_000,
    })
    const [output] = (await once(child.stdout, 'data')) as [Buffer]
    expect(output.toString()).toBe('EMFILE EFBIG\n')
  })
})
