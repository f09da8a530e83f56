import { Silence } from '../../../packages/launcher/src/nodes/waiting.ts'

function listen(limit: number): { said: string[]; silence: Silence } {
  const said: string[] = []
  const silence = new Silence(limit, {
    onSilent: (seconds) => said.push(`silent ${seconds}`),
    onBack: (seconds) => said.push(`back ${seconds}`),
    onLost: () => said.push('lost'),
  })
  return { said, silence }
}

function tick(silence: Silence, times: number): void {
  for (let i = 0; i < times; i++) silence.tick()
}

it('mentions a silence, and that it is over', () => {
  const { said, silence } = listen(30_000)
  tick(silence, 5)
  silence.heard()
  expect(said).toEqual([])
  tick(silence, 8)
  silence.heard()
  expect(said).toEqual(['silent 5', 'back 8'])
})

it('gives up after the limit, once', () => {
  const { said, silence } = listen(30_000)
  tick(silence, 30)
  expect(said).toEqual(['silent 5'])
  tick(silence, 100)
  expect(said).toEqual(['silent 5', 'lost'])
})

it('needs no announcement before a short limit', () => {
  const { said, silence } = listen(500)
  tick(silence, 1)
  expect(said).toEqual([])
  tick(silence, 1)
  expect(said).toEqual(['lost'])
})
