import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { connectStore, startStoreServer } from '@tsrun/store'
import { until } from './raw-client.ts'
import { token } from './stores.ts'

describe('a connection to the store', () => {
  const children: ChildProcess[] = []
  afterEach(async () => {
    for (const child of children.splice(0)) {
      if (child.exitCode !== null || child.signalCode !== null) continue
      child.kill('SIGKILL')
      await once(child, 'exit')
    }
  })

  function run(fixture: string, ...args: string[]): ChildProcess {
    const script = fileURLToPath(new URL(`./fixtures/${fixture}`, import.meta.url))
    const flags = ['--import', 'tsx']
    const child = spawn(process.execPath, [...flags, script, ...args], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    children.push(child)
    return child
  }

  it('keeps its process alive only while a call is pending', async () => {
    const server = await startStoreServer({ token })
    const { host, port } = server.endpoint
    const child = run('idle-client.ts', host, String(port), token)
    const exit = once(child, 'exit')
    await server.local.get('arrived')
    await until(() => server.inspect().waiting === 1)
    await server.local.set('go', '')
    expect(await exit).toEqual([0, null])
    expect(await server.local.check(['left'])).toBe(true)
    await until(() => server.inspect().connections === 0)
    await server.close()
  })

  it('fails on every client when the process that hosts the store is killed', async () => {
    const host = run('host.ts', token)
    const [line] = (await once(host.stdout!, 'data')) as [Buffer]
    const store = await connectStore({ host: '127.0.0.1', port: Number(line.toString()), token })
    const pending = store.get('k')
    host.kill('SIGKILL')
    await expect(pending).rejects.toMatchObject({ code: 'ERR_TSR_STORE_CLOSED' })
  })
})
