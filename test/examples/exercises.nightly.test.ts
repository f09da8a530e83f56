import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { jest } from '@jest/globals'
import { blocksOf, headingsOf } from '../docs/markdown.ts'
import { root, runShell, type Outcome } from '../docs/run.ts'

const LIMIT = 60_000

jest.setTimeout(LIMIT + 10_000)

const name = 'examples/exercises.md'
const page = readFileSync(join(root, name), 'utf8')

interface Question {
  readonly lesson: string
  readonly title: string
  readonly text: string
  /** The languages of its blocks. */
  readonly languages: readonly string[]
  readonly commands: string
  readonly seen: string
}

const questions = page.split(/^## /m).flatMap((section): Question[] => {
  const [lesson] = section.split('\n', 1)
  return section
    .split(/^### /m)
    .slice(1)
    .map((text) => {
      const [title] = text.split('\n', 1)
      const blocks = blocksOf(name, text)
      const [commands, seen] = blocks.map((block) => block.text)
      const languages = blocks.map(({ language }) => language)
      return { lesson: lesson!, title: title!, text, languages, commands: commands!, seen: seen! }
    })
})

const outcomes = new Map<string, Promise<Outcome>>()

/** Runs commands as a reader would, but without the start of npx. */
async function outcomeOf(commands: string): Promise<Outcome> {
  const known = outcomes.get(commands)
  const outcome = known ?? runShell(commands.replaceAll('npx ', 'node_modules/.bin/'), root, LIMIT)
  outcomes.set(commands, outcome)
  return await outcome
}

/** The lines of `seen` to which `output` has no line of its own. `…` stands for any text. */
function missingLines(seen: string, output: string): string[] {
  const left = output.split('\n').map((line) => line.trim())
  return seen
    .trimEnd()
    .split('\n')
    .filter((line) => {
      const parts = line.split('…').map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
      const pattern = new RegExp(`^${parts.join('.*')}$`)
      const at = left.findIndex((each) => pattern.test(each))
      if (at >= 0) left.splice(at, 1)
      return at < 0
    })
}

it('compares each expected line with one of the output', () => {
  expect(missingLines('a … c\na … c\nd.\n', ' a b c\nd.\n')).toEqual(['a … c'])
  expect(missingLines('d.', 'de')).toEqual(['d.'])
})

describe('the exercises', () => {
  it('are at least three for each lesson, with commands, output and a link to the docs', () => {
    const counts = new Map<string, number>()
    for (const { lesson, text, languages } of questions) {
      counts.set(lesson, (counts.get(lesson) ?? 0) + 1)
      expect(languages).toEqual(['sh', 'text'])
      expect(text).toMatch(/^\*\*Change\*\* /m)
      expect(text).toMatch(/^\*\*Observe\*\*: .*\]\(\.\.\/docs\//m)
    }
    expect([...counts].filter(([, count]) => count < 3)).toEqual([])
  })

  it('link to each solution', () => {
    const solutions = readdirSync(join(root, 'examples/solutions'))
    const linked = page.matchAll(/\]\(solutions\/([^)]+)\)/g)
    expect(new Set(Array.from(linked, ([, file]) => file))).toEqual(new Set(solutions))
  })

  it('are those that examples/README.md links to', () => {
    const course = readFileSync(join(root, 'examples/README.md'), 'utf8')
    const linked = Array.from(course.matchAll(/\]\(exercises\.md#([^)]+)\)/g), ([, at]) => at)
    const lessons = questions.flatMap(({ lesson }) => headingsOf(`## ${lesson}`))
    expect(linked).toEqual([...new Set(lessons)])
  })

  it.each(questions)('print what the page says: $lesson, $title', async (question) => {
    const { code, output } = await outcomeOf(question.commands)
    const missing = missingLines(question.seen, output)
    expect({ code, output, missing }).toEqual({ code: 0, output, missing: [] })
  })
})

it('the first pipeline of examples/README.md prints what the page says', async () => {
  const course = 'examples/README.md'
  const [commands, seen] = blocksOf(course, readFileSync(join(root, course), 'utf8'))
  const { code, output } = await outcomeOf(commands!.text.replace('npm ci', ''))
  const missing = missingLines(seen!.text, output)
  expect({ code, output, missing }).toEqual({ code: 0, output, missing: [] })
})

it('a solution whose proof fails ends with exit code 1', async () => {
  const program = `import('./examples/lib/prove.ts').then((m) => m.prove('1 is 2', 1 === 2))`
  const { code, output } = await runShell(`node_modules/.bin/tsx -e "${program}"`, root, LIMIT)
  expect({ code, output }).toEqual({ code: 1, output: 'WRONG: 1 is 2\n' })
})
