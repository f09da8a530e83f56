import { jest } from '@jest/globals'
import { explore } from '../support/exploration.ts'
import { explorations } from './support/explorations.ts'

jest.setTimeout(900_000)

/** Steps whose ways are all tried; more with `EXPLORE=9 npm run test:nightly -- test/distributed/engine`. */
const depth = Number(process.env['EXPLORE'] ?? 6)

describe('each interleaving of the first steps', () => {
  it.each(Object.entries(explorations))('ends correctly: %s', async (name, create) => {
    // the group of those that are left is agreed on in the store, which takes its time
    const steps = name.includes('are left') ? Math.min(depth, 4) : depth
    const runs = await explore(create, steps)
    process.stdout.write(`${name}: ${runs} runs of ${steps} steps\n`)
    expect(runs).toBeGreaterThan(1)
  })
})
