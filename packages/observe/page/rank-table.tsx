import type { RankView } from '../src/dashboard/views.ts'
import { bytesText, durationText, numberText, percentText } from './formats.ts'
import { Table } from './table.tsx'

export function RankTable({ ranks }: { readonly ranks: readonly RankView[] }) {
  if (ranks.length === 0) return <p class="none">No rank has joined its group yet.</p>
  const onGpus = ranks.some(({ gpu, gpuMemory }) => gpu !== undefined || gpuMemory !== undefined)
  const titles = [
    'Rank',
    'State',
    'For',
    'Waits for',
    'Step',
    'Loss',
    'Steps/s',
    'CPU',
    'Memory',
  ].concat(onGpus ? ['GPU', 'GPU memory'] : [], 'Operation')
  return (
    <Table label="Table of ranks" titles={titles}>
      {ranks.map((rank) => (
        <Row key={rank.rank} rank={rank} onGpus={onGpus} />
      ))}
    </Table>
  )
}

function stepText({ step, of }: RankView) {
  return step === undefined ? '–' : of === undefined ? String(step) : `${step} of ${of}`
}

function Row({ rank: one, onGpus }: { readonly rank: RankView; readonly onGpus: boolean }) {
  const waits = one.waitsFor.length > 0
  const hasEnded = one.state === 'ended' || one.state === 'died'
  return (
    <tr>
      <th scope="row">{one.rank}</th>
      <td>
        <span class={`dot ${one.state}`} aria-hidden="true" />
        {one.state}
      </td>
      <td>{hasEnded ? '–' : durationText(one.seconds)}</td>
      <td>{waits ? one.waitsFor.join(', ') : '–'}</td>
      <td>{stepText(one)}</td>
      <td>{numberText(one.loss, 4)}</td>
      <td>{numberText(one.stepsPerSecond)}</td>
      <td>
        {one.cpu !== undefined && (
          <meter min={0} max={Math.max(1, one.cpu)} value={one.cpu} aria-label="CPU" />
        )}
        {percentText(one.cpu)}
      </td>
      <td>{bytesText(one.memory)}</td>
      {onGpus && <td>{one.gpu === undefined ? '–' : `${one.gpu} %`}</td>}
      {onGpus && <td>{bytesText(one.gpuMemory)}</td>}
      <td class="operation">{one.operation ?? '–'}</td>
    </tr>
  )
}
