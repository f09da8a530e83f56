import { HeartbeatMonitor } from '../../internals/launcher/nodes.ts'

function listen(limit: number): { said: string[]; monitor: HeartbeatMonitor } {
  const said: string[] = []
  const monitor = new HeartbeatMonitor(limit, {
    onSilent: (seconds) => said.push(`silent ${seconds}`),
    onBack: (seconds) => said.push(`back ${seconds}`),
    onLost: () => said.push('lost'),
  })
  return { said, monitor }
}

function tick(monitor: HeartbeatMonitor, times: number): void {
  for (let i = 0; i < times; i++) monitor.tick()
}

it('mentions a silence, and that it is over', () => {
  const { said, monitor } = listen(30_000)
  tick(monitor, 5)
  monitor.heard()
  expect(said).toEqual([])
  tick(monitor, 8)
  monitor.heard()
  expect(said).toEqual(['silent 5', 'back 8'])
})

it('gives up after the limit, once', () => {
  const { said, monitor } = listen(30_000)
  tick(monitor, 30)
  expect(said).toEqual(['silent 5'])
  tick(monitor, 100)
  expect(said).toEqual(['silent 5', 'lost'])
})

it('needs no announcement before a short limit', () => {
  const { said, monitor } = listen(500)
  tick(monitor, 1)
  expect(said).toEqual([])
  tick(monitor, 1)
  expect(said).toEqual(['lost'])
})
