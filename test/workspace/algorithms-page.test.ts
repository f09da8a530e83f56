import { existsSync, readFileSync } from 'node:fs'
import { algorithmsOf, type OperationName } from '@tsrun/distributed'
import { algorithmNames, operationCodes } from '../internals/distributed/algorithms.ts'

const folder = new URL('../../docs/algorithms/', import.meta.url)
const index = readFileSync(new URL('README.md', folder), 'utf8')
const algorithms = algorithmNames.filter((name) => name !== 'auto')

function rowOf(algorithm: string): string | undefined {
  return index.split('\n').find((line) => line.startsWith(`| [\`${algorithm}\`](${algorithm}.md)`))
}

describe('docs/algorithms', () => {
  it.each(algorithms)('has a page and a row for %s', (algorithm) => {
    expect(rowOf(algorithm)).toBeDefined()
    expect(existsSync(new URL(`${algorithm}.md`, folder))).toBe(true)
  })

  const operations = (Object.keys(operationCodes) as OperationName[]).filter(
    (operation) => operation !== 'send' && operation !== 'recv',
  )

  it.each(operations)('lists exactly the algorithms that implement %s', (operation) => {
    const named = algorithms.filter((algorithm) => rowOf(algorithm)?.includes(`\`${operation}\``))
    expect(named.sort()).toEqual(algorithmsOf(operation).sort())
  })
})
