import { useState } from 'preact/hooks'
import type { StepView } from '../src/dashboard/views.ts'
import { bytesText, millisecondsText } from './formats.ts'
import { Table } from './table.tsx'

/** The collectives of a rank in the last step, such as the buckets of data parallel training. */
export function Collectives({ step }: { readonly step: StepView }) {
  const [chosen, choose] = useState<number>()
  const shown = step.ranks.find(({ rank }) => rank === chosen) ?? step.ranks[0]!
  return (
    <>
      <div class="filters">
        <label>
          Rank{' '}
          <select
            value={shown.rank}
            onChange={({ currentTarget }) => {
              choose(Number(currentTarget.value))
            }}
          >
            {step.ranks.map(({ rank }) => (
              <option key={rank} value={rank}>
                {rank}
              </option>
            ))}
          </select>
        </label>
        <span>Times are those since the beginning of step {step.step}.</span>
      </div>
      {shown.collectives.length === 0 ? (
        <p class="none">There were none.</p>
      ) : (
        <Table
          label="Table of collectives"
          titles={['Name', 'Size', 'Ready', 'All ranks there', 'Done', 'Took']}
        >
          {shown.collectives.map(({ name, bytes, ready, arrived, end }, index) => (
            <tr key={index}>
              <th scope="row">{name}</th>
              <td>{bytesText(bytes)}</td>
              <td>{millisecondsText(ready)}</td>
              <td>{millisecondsText(arrived)}</td>
              <td>{millisecondsText(end)}</td>
              <td>{millisecondsText(end - ready)}</td>
            </tr>
          ))}
        </Table>
      )}
    </>
  )
}
