import type { JSX } from 'preact'
import { timeMessages, type LinkCosts, type RecordedCollective } from './collective.ts'
import { bytesText, colourOf, timeText } from './formats.ts'

const WIDTH = 520
const MARGIN = 52
const ROW = 20

interface Properties {
  readonly recorded: RecordedCollective
  /** The number of events that have happened. */
  readonly at: number
  readonly costs: LinkCosts
}

/** The messages on the clock of the simulated network: a row for each sender. */
export function MessageTimes({ recorded, at, costs }: Properties): JSX.Element {
  const messages = timeMessages(recorded, costs)
  const end = Math.max(...messages.map(({ arrival }) => arrival))
  const scale = (WIDTH - MARGIN - 8) / end
  const height = recorded.ranks * ROW + 18
  const sent = recorded.events.slice(0, at).filter(({ kind }) => kind === 'sent').length
  return (
    <svg
      class="times"
      viewBox={`0 0 ${WIDTH} ${height}`}
      role="img"
      aria-label={`messages of each rank; the last arrives after ${timeText(end)}`}
    >
      {Array.from({ length: recorded.ranks }, (_, rank) => (
        <g key={rank}>
          <text x={0} y={rank * ROW + 14}>
            rank {rank}
          </text>
          <rect
            class="lane"
            x={MARGIN}
            y={rank * ROW + 2}
            width={WIDTH - MARGIN - 8}
            height={ROW - 4}
          />
        </g>
      ))}
      {messages.map(({ from, to, bytes, start, arrival }, index) => (
        <rect
          key={index}
          class={`message of ${index < sent ? '' : 'later'}`}
          style={colourOf(to)}
          x={MARGIN + start * scale}
          y={from * ROW + 3}
          width={Math.max(1, (arrival - start) * scale - 1)}
          height={ROW - 6}
          rx={2}
        >
          <title>{`${bytesText(bytes)} to rank ${to}, ${timeText(start)} to ${timeText(arrival)}`}</title>
        </rect>
      ))}
      <text x={MARGIN} y={height - 3}>
        0
      </text>
      <text class="end" x={WIDTH - 8} y={height - 3}>
        {timeText(end)}
      </text>
    </svg>
  )
}
