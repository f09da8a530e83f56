import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { jest } from '@jest/globals'
import { Cluster, onHosts, root } from './support/cluster.ts'

jest.setTimeout(120_000)

const namespaces = (): string => execFileSync('ip', ['netns', 'list'], { encoding: 'utf8' })

onHosts('taking a cluster down removes its hosts and kills their processes', async () => {
  const cluster = new Cluster(2)
  const sleeper = cluster.run(1, ['sleep', '600'])
  expect(namespaces()).toContain(`${cluster.name}-n1`)
  await cluster.down()
  expect((await sleeper.finished).signal).toBe('SIGKILL')
  expect(namespaces()).not.toContain(cluster.name)
  expect(existsSync(`/run/tsrun-netns/${cluster.name}`)).toBe(false)
})

onHosts('a new cluster removes the hosts that a killed test left behind', async () => {
  const up = `${root}scripts/netns-cluster.sh up 1 $$; sleep 600`
  const dying = spawn('bash', ['-c', up], { stdio: ['ignore', 'pipe', 'ignore'], detached: true })
  const [line] = (await once(dying.stdout, 'data')) as [Buffer]
  const name = line.toString().trim()
  expect(namespaces()).toContain(`${name}-n0`)
  process.kill(-dying.pid!, 'SIGKILL')
  await once(dying, 'exit')
  const next = new Cluster(1)
  expect(namespaces()).not.toContain(name)
  expect(namespaces()).toContain(next.name)
  await next.down()
})
