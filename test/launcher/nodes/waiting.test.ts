import { type HeartbeatMonitor, monitorHeartbeats } from '../../internals/launcher/nodes.ts'

function listen(limit: number): { said: string[]; monitor: HeartbeatMonitor } {
  const said: string[] = []
  const monitor = monitorHeartbeats(limit, {
    onSilent: (seconds) => said.push(`silent ${seconds}`),
    onBack: (seconds) => said.push(`back ${seconds}`),
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
  expect(said).toEqual(['silent 5', 'back 8'])
})

it('the heartbeat monitor gives up once, after the limit', () => {
  const { said, monitor } = listen(30_000)
  tick(monitor, 30)
  expect(said).toEqual(['silent 5'])
  tick(monitor, 100)
  expect(said).toEqual(['silent 5', 'lost'])
})

it('the heartbeat monitor makes no announcement if the limit is short', () => {
  const { said, monitor } = listen(500)
  tick(monitor, 1)
  expect(said).toEqual([])
  tick(monitor, 1)
  expect(said).toEqual(['lost'])
})
