import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { flagTable } from '../../packages/launcher/src/args/flags.ts'
import { root } from './run.ts'

const page = readFileSync(join(root, 'docs/torch.md'), 'utf8')
const [, section] = page.split('\n## Flags of torchrun\n')

/** The cells of the table's rows: torchrun's flags, ours, and what differs. */
const rows = section!
  .split('\n')
  .filter((line) => line.startsWith('| `'))
  .map((line) => line.split('|').map((cell) => cell.trim()))

function flagsIn(cell: string): string[] {
  return Array.from(cell.matchAll(/`--([a-z-]+)`/g), ([, name]) => name!)
}

describe('docs/torch.md', () => {
  it('lists the thirty flags of torchrun', () => {
    expect(new Set(rows.flatMap((cells) => flagsIn(cells[1]!))).size).toBe(30)
  })

  it('says which of them tsrun has by the same name', () => {
    const shared = flagTable.flatMap((flag) => ('torchrun' in flag ? [flag.torchrun] : []))
    const named = rows.flatMap((cells) => {
      const ours = flagsIn(cells[2]!)
      return flagsIn(cells[1]!).filter((name) => ours.includes(name))
    })
    expect(named.toSorted()).toEqual(shared.toSorted())
    expect(section).toContain('has nine of')
    expect(shared).toHaveLength(9)
  })
})
