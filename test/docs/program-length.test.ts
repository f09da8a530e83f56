import { programs } from './programs.ts'

/** The lines of code: neither blank nor a comment. */
function codeOf(program: string): string[] {
  return program.split('\n').filter((line) => !/^\s*(\/\/|\/\*.*\*\/\s*$|$)/.test(line))
}

/** The programs of docs/training.md that contain all of these. */
function showing(...parts: string[]): string[][] {
  const found = programs.filter(
    ({ where, text }) =>
      where.startsWith('docs/training.md') && parts.every((part) => text.includes(part)),
  )
  return found.map(({ text }) => codeOf(text))
}

it('README.md begins with a program that trains a pipeline in ten lines', () => {
  const first = programs.find(({ where }) => where.startsWith('README.md'))
  expect(first!.text).toContain('mesh: { pp: -1 }')
  expect(codeOf(first!.text).length).toBeLessThanOrEqual(10)
})

// snippets.slow.test.ts runs them
describe('docs/training.md', () => {
  it('trains, evaluates and saves a model of its own in at most 40 lines', () => {
    const [lines, ...others] = showing('new Sequential(', 'examples(', 'evaluate:', 'save:')
    expect(others).toEqual([])
    expect(lines!.length).toBeLessThanOrEqual(40)
  })

  it('shows a loop of 8 lines that makes its own batches', () => {
    const [lines, ...others] = showing('for (let step', 'run.step(')
    expect(others).toEqual([])
    const begin = lines!.findIndex((line) => line.startsWith('for '))
    const end = lines!.findIndex((line, at) => at > begin && line === '}')
    expect(end).toBeGreaterThan(begin)
    expect(end + 1 - begin).toBeLessThanOrEqual(8)
  })
})
