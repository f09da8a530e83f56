import { killLeftovers, tsrun } from '../launcher/support/tsrun.ts'

afterEach(killLeftovers)

const examples: readonly (readonly string[])[] = [
  ['pipeline.ts', '--report', '--images', '2048', '--epochs', '1'],
  ['interleaved.ts', '--steps', '2'],
  ['zero-bubble.ts', '--steps', '2'],
  ['06-1f1b.ts'],
  ['benchmark-collectives.ts', '--elements', '1000'],
]

describe.each([80, 120])('in %d columns', (width) => {
  it.each(examples)('the tables and timelines of examples/%s fit', async (script, ...flags) => {
    const env = width === 80 ? {} : { COLUMNS: String(width) }
    const command = ['--nproc', '4', `examples/${script}`, ...flags]
    const { code, stdout, stderr } = await tsrun(command, { cwd: process.cwd(), env })
    expect({ code, stderr: code === 0 ? '' : stderr }).toEqual({ code: 0, stderr: '' })
    const lines = stdout.split('\n').filter((line) => !line.includes('{'))
    expect(lines.length).toBeGreaterThan(10)
    expect(lines.filter((line) => line.length > width)).toEqual([])
    // and they use the room
    if (width === 120) expect(lines.some((line) => line.length > 80)).toBe(true)
  })

  it.each(examples.map(([script]) => [script!]))(
    'the help page of examples/%s fits',
    async (script) => {
      const env = width === 80 ? {} : { COLUMNS: String(width) }
      const { stdout } = await tsrun([`examples/${script}`, '--help'], { cwd: process.cwd(), env })
      expect(stdout).toContain('  --')
      expect(stdout.split('\n').filter((line) => line.length > width)).toEqual([])
    },
  )
})
