import { type HeartbeatMonitor, monitorHeartbeats } from '../../internals/launcher/nodes.ts'

const silent = 'node 1 (h1) has been silent for 5 s; the job fails after 30 s'

function listen(limit: number): { said: string[]; monitor: HeartbeatMonitor } {
  const said: string[] = []
  const announcer = { say: (_: string, message: string) => said.push(message) }
  const monitor = monitorHeartbeats(announcer, limit, {
    node: () => ({ nodeRank: 1, host: 'h1' }),
    consequence: 'the job fails',
    onLost: () => said.push('lost'),
  })
  return { said, monitor }
}

function tick(monitor: HeartbeatMonitor, times: number): void {
  for (let i = 0; i < times; i++) monitor.tick()
}

it('the heartbeat monitor announces a silence and its end', () => {
  const { said, monitor } = listen(30_000)
  tick(monitor, 5)
  monitor.heard()
  expect(said).toEqual([])
  tick(monitor, 8)
  monitor.heard()
  expect(said).toEqual([silent, 'node 1 (h1) is back after 8 s of silence'])
})

it('the heartbeat monitor gives up once, after the limit', () => {
  const { said, monitor } = listen(30_000)
  tick(monitor, 30)
  expect(said).toEqual([silent])
  tick(monitor, 100)
  expect(said).toEqual([silent, 'lost'])
})

it('the heartbeat monitor makes no announcement if the limit is short', () => {
  const { said, monitor } = listen(500)
  tick(monitor, 1)
  expect(said).toEqual([])
  tick(monitor, 1)
  expect(said).toEqual(['lost'])
})
