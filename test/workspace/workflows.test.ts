import { readdirSync, readFileSync } from 'node:fs'
import { parse } from 'yaml'

interface Job {
  readonly 'runs-on': string
  readonly strategy?: { readonly matrix?: { readonly os?: string[]; readonly node?: number[] } }
  readonly steps?: readonly { readonly with?: { readonly 'node-version'?: number | string } }[]
}

const root = new URL('../../', import.meta.url)
const folder = new URL('.github/workflows/', root)
const page = readFileSync(new URL('docs/platforms.md', root), 'utf8')

/** The cells of the table's rows, without the last one. */
const rows = page
  .split('\n')
  .filter((line) => /^\| `\w+` /.test(line))
  .map((line) => line.split('|').slice(1, 5))
  .map((cells) => cells.map((cell) => cell.replaceAll('`', '').trim()).join(' | '))

/** The jobs that check something; others publish what these have made. */
const publishes = ['images publish', 'release notes', 'site publish']

const jobs = readdirSync(folder).flatMap((file) => {
  const { jobs } = parse(readFileSync(new URL(file, folder), 'utf8')) as {
    jobs: Record<string, Job>
  }
  return Object.entries(jobs).map(([name, job]) => ({ workflow: file.slice(0, -4), name, job }))
})

it('docs/platforms.md has a row for each job of the workflows, with its systems and versions of Node', () => {
  const expected = jobs
    .filter(({ workflow, name }) => !publishes.includes(`${workflow} ${name}`))
    .map(({ workflow, name, job }) => {
      const { os, node } = job.strategy?.matrix ?? {}
      const systems = os ?? [job['runs-on'].replace('-latest', '')]
      const own = job.steps?.map((step) => step.with?.['node-version']).find(Number.isInteger)
      const versions = node ?? (own === undefined ? ['in the image'] : [own])
      return [workflow, name, systems.join(', '), versions.join(', ')].join(' | ')
    })
  expect(expected.length).toBeGreaterThan(5)
  expect(rows).toEqual(expected)
})
