import type { LinksView } from '../src/dashboard/views.ts'
import { bytesText } from './formats.ts'
import { Table } from './table.tsx'

/** Maximum columns with text in the cells. */
const MOST_TEXTS = 12

/** The bytes that each rank of this host has sent to each rank of the job. */
export function LinkMatrix({ links: { ranks, sent } }: { readonly links: LinksView }) {
  const most = Math.max(1, ...sent.flat())
  const total = sent.flat().reduce((sum, bytes) => sum + bytes, 0)
  const columns = sent[0]?.length ?? 0
  const hasTexts = columns <= MOST_TEXTS
  return (
    <>
      <p class="facts">
        {bytesText(total)} in all.
        {total === 0 && ' Collectives of ranks that share memory may need no messages.'}
      </p>
      <Table
        label="Table of links"
        titles={['From \\ to', ...Array.from({ length: columns }, (_, rank) => rank)]}
        class={hasTexts ? 'links' : 'links small'}
      >
        {ranks.map((from, row) => (
          <tr key={from}>
            <th scope="row">{from}</th>
            {sent[row]!.map((bytes, to) => (
              <td
                key={to}
                title={`rank ${from} to rank ${to}: ${bytesText(bytes)}`}
                style={{ '--part': `${bytes === 0 ? 0 : 12 + (58 * bytes) / most}%` }}
              >
                {from === to ? '' : hasTexts ? bytesText(bytes) : ''}
              </td>
            ))}
          </tr>
        ))}
      </Table>
    </>
  )
}
