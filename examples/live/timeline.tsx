import type { JSX } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import {
  drawSvg,
  type Schedule,
  type SimulationOptions,
  type TimedAction,
} from '@tsrun/training/browser'

const WIDTH = 1100

interface Properties {
  readonly schedule: Schedule
  readonly durations: SimulationOptions & { readonly transfer: number }
  /** How much of the step is drawn, from 0 to 1. */
  readonly played: number
}

/** The actions of all ranks and their messages on the simulated clock, up to a moment. */
export function Timeline({ schedule, durations, played }: Properties): JSX.Element {
  const place = useRef<HTMLDivElement>(null)
  const { spans, makespan } = schedule.simulate(durations)
  const drawing = drawSvg(schedule.actions, { ...durations, width: WIDTH })
  const now = played * makespan
  useEffect(() => {
    // The drawing has a bar for each span, in the same order.
    const slots = place.current!.querySelectorAll<SVGGElement>('.slot')
    for (const [index, { start }] of spans.entries()) {
      slots[index]!.style.visibility = start < now ? 'visible' : 'hidden'
    }
    for (const outline of place.current!.querySelectorAll<SVGElement>('.critical')) {
      outline.style.visibility = played === 1 ? 'visible' : 'hidden'
    }
  })
  const boxes = boxesOf(drawing)
  const ends = boxes.map(({ x, width }) => x + width)
  const scale = (Math.max(...ends) - Math.min(...boxes.map(({ x }) => x))) / makespan
  const height = /viewBox="0 0 \d+ (\d+)"/.exec(drawing)![1]!
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label="Timeline of the step">
      <div class="timeline">
        <div ref={place} dangerouslySetInnerHTML={{ __html: drawing }} />
        <svg class="messages" viewBox={`0 0 ${WIDTH} ${height}`} aria-hidden="true">
          {messagesOf(spans, schedule.placement)
            .filter(([from]) => spans[from]!.end < now)
            .map(([from, to]) => {
              const x = ends[from]!
              const arrival = x + durations.transfer * scale
              const [a, b] = [boxes[from]!, boxes[to]!]
              return <line key={`${from} ${to}`} x1={x} y1={a.y} x2={arrival} y2={b.y} />
            })}
        </svg>
      </div>
    </div>
  )
}

interface Box {
  readonly x: number
  readonly width: number
  /** The middle of the bar. */
  readonly y: number
}

/** Where the bars of a drawing are, in the order of the spans. */
function boxesOf(drawing: string): Box[] {
  const bars = drawing.matchAll(
    /class="slot-\w" x="([^"]*)" y="([^"]*)" width="([^"]*)" height="([^"]*)"/g,
  )
  return Array.from(bars, ([, x, y, width, height]) => ({
    x: Number(x),
    width: Number(width),
    y: Number(y) + Number(height) / 2,
  }))
}

/** The messages between ranks: the spans that make and that need them, as indices. */
function messagesOf(
  spans: readonly TimedAction[],
  placement: readonly number[],
): [from: number, to: number][] {
  const forwards = new Map<string, number>()
  const backwards = new Map<string, number>()
  for (const [index, { kind, stage, microbatch }] of spans.entries()) {
    if (kind === 'F') forwards.set(`${stage} ${microbatch}`, index)
    else if (kind !== 'W') backwards.set(`${stage} ${microbatch}`, index)
  }
  return spans.flatMap(({ kind, stage, microbatch }, from): [number, number][] => {
    if (kind === 'W') return []
    const [spansOfKind, next] = kind === 'F' ? [forwards, stage + 1] : [backwards, stage - 1]
    const to = spansOfKind.get(`${next} ${microbatch}`)
    return to === undefined || placement[next] === placement[stage] ? [] : [[from, to]]
  })
}
