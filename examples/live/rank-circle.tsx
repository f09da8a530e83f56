import type { JSX } from 'preact'
import type { MessageEvent } from '@tsrun/training/browser'
import type { RecordedCollective } from './collective.ts'
import { bytesText, colourOf } from './formats.ts'

const WIDTH = 520
const HEIGHT = 470
const RADIUS = 172
const BOX = { width: 112, height: 82 }

/** Where the centre of a rank is. */
function placeOf(rank: number, ranks: number): { readonly x: number; readonly y: number } {
  const angle = (2 * Math.PI * rank) / ranks
  return {
    x: WIDTH / 2 + RADIUS * Math.sin(angle),
    y: HEIGHT / 2 - RADIUS * Math.cos(angle),
  }
}

interface Properties {
  readonly recorded: RecordedCollective
  /** The number of events that have happened. */
  readonly at: number
}

/** The ranks with their buffers on a circle, and the messages between them. */
export function RankCircle({ recorded, at }: Properties): JSX.Element {
  const { ranks, events, contents } = recorded
  const now = events[at - 1]
  const flying = inFlight(events.slice(0, at))
  const shown = now?.kind === 'received' ? [...flying, now] : flying
  return (
    <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`${ranks} ranks on a circle`}>
      <defs>
        <marker
          id="head"
          viewBox="0 0 8 8"
          refX="7"
          refY="4"
          markerWidth="5"
          markerHeight="5"
          orient="auto"
        >
          <path d="M0 0 8 4 0 8z" fill="context-stroke" />
        </marker>
      </defs>
      <circle cx={WIDTH / 2} cy={HEIGHT / 2} r={RADIUS} class="ring" />
      {shown.map((event) => (
        <Arrow
          key={`${event.kind} ${event.rank} ${event.peer} ${event.step}`}
          event={event}
          ranks={ranks}
          isNow={event === now}
        />
      ))}
      {contents[at]!.map((chunks, rank) => (
        <Buffer key={rank} rank={rank} chunks={chunks} ranks={ranks} />
      ))}
    </svg>
  )
}

/** The messages that were sent but have not been received. */
function inFlight(events: readonly MessageEvent[]): MessageEvent[] {
  const flying = new Map<string, MessageEvent>()
  for (const event of events) {
    const { kind, rank, peer, step } = event
    if (kind === 'sent') flying.set(`${rank} ${peer} ${step}`, event)
    else flying.delete(`${peer} ${rank} ${step}`)
  }
  return [...flying.values()]
}

interface ArrowProperties {
  readonly event: MessageEvent
  readonly ranks: number
  readonly isNow: boolean
}

function Arrow({ event, ranks, isNow }: ArrowProperties): JSX.Element {
  const { kind, rank, peer, bytes } = event
  const [from, to] = kind === 'sent' ? [rank, peer] : [peer, rank]
  const [a, b] = [placeOf(from, ranks), placeOf(to, ranks)]
  const length = Math.hypot(b.x - a.x, b.y - a.y)
  const [dx, dy] = [(b.x - a.x) / length, (b.y - a.y) / length]
  const margin = Math.min(56, length / 3)
  const [x, y] = [(a.x + b.x) / 2, (a.y + b.y) / 2]
  return (
    <g class={`arrow ${isNow ? 'now' : ''} ${kind}`} style={colourOf(from)}>
      <line
        x1={a.x + dx * margin}
        y1={a.y + dy * margin}
        x2={b.x - dx * margin}
        y2={b.y - dy * margin}
        marker-end="url(#head)"
      />
      {isNow && (
        <>
          <rect x={x - 36} y={y - 12} width={72} height={23} rx={6} />
          <text x={x} y={y + 4}>
            {bytesText(bytes)}
          </text>
        </>
      )}
    </g>
  )
}

interface BufferProperties {
  readonly rank: number
  readonly ranks: number
  /** Sums of 10 ** r of the ranks r whose values a chunk contains. */
  readonly chunks: readonly number[]
}

/** The buffer of a rank: a column for each chunk, with a cell for each rank that may be part of it. */
function Buffer({ rank, ranks, chunks }: BufferProperties): JSX.Element {
  const { x, y } = placeOf(rank, ranks)
  const [left, top] = [x - BOX.width / 2, y - BOX.height / 2]
  const [wide, high] = [(BOX.width - 8) / ranks, (BOX.height - 26) / ranks]
  return (
    <g class="rank" style={colourOf(rank)}>
      <rect class="box" x={left} y={top} width={BOX.width} height={BOX.height} rx={8} />
      <text x={x} y={top + 16}>
        rank {rank}
      </text>
      {chunks.flatMap((sum, chunk) =>
        Array.from({ length: ranks }, (_, other) => (
          <rect
            key={`${chunk} ${other}`}
            class={Math.floor(sum / 10 ** other) % 10 > 0 ? 'cell of' : 'cell'}
            style={colourOf(other)}
            x={left + 4 + chunk * wide + 1}
            y={top + 22 + other * high}
            width={wide - 2}
            height={high - 1.5}
            rx={1.5}
          />
        )),
      )}
    </g>
  )
}
