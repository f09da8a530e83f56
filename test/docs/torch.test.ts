import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { flagTable } from '../internals/launcher/args.ts'
import { root } from './run.ts'

const page = readFileSync(join(root, 'docs/torch.md'), 'utf8')
const [, section] = page.split(/\n## (?:Flags of torchrun|Lines that were pasted)\n/)

/** The cells of the table's rows: torchrun's flags, ours, and what differs. */
const rows = section!
  .split('\n')
  .filter((line) => line.startsWith('| `'))
  .map((line) => line.split(/(?<!\\)\|/).map((cell) => cell.trim()))

describe('docs/torch.md', () => {
  it('lists the flags of torchrun as `npm run docs` writes them', () => {
    const shared = flagTable.filter(({ torchrun }) => torchrun !== undefined)
    // The 32nd is --print-completion, which is a command here.
    expect(shared).toHaveLength(31)
    const expected = shared.map(({ torchrun, name, aliases = [], differs = '' }) => [
      `\`--${torchrun!}\``,
      [name, ...aliases].map((one) => `\`${one.length === 1 ? '-' : '--'}${one}\``).join(', '),
      differs,
    ])
    expect(rows.map((cells) => cells.slice(1, 4))).toEqual(expected)
  })
})
