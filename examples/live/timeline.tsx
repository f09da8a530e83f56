import type { JSX } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import { drawSvg, type Schedule, type SimulationOptions } from '@tsrun/training/browser'

const WIDTH = 1100

interface Properties {
  readonly schedule: Schedule
  readonly durations: SimulationOptions
  /** How much of the step is drawn, from 0 to 1. */
  readonly played: number
}

/** The actions of all ranks on the simulated clock, up to a moment. */
export function Timeline({ schedule, durations, played }: Properties): JSX.Element {
  const place = useRef<HTMLDivElement>(null)
  const { spans, makespan } = schedule.simulate(durations)
  const criticalPath = played === 1
  const drawing = drawSvg(schedule.actions, { ...durations, width: WIDTH, criticalPath })
  useEffect(() => {
    // The drawing has a bar for each span, in the same order.
    const slots = place.current!.querySelectorAll<SVGGElement>('.slot')
    for (const [index, { start }] of spans.entries()) {
      slots[index]!.style.visibility = start < played * makespan ? 'visible' : 'hidden'
    }
  })
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label="Timeline of the step">
      <div ref={place} class="timeline" dangerouslySetInnerHTML={{ __html: drawing }} />
    </div>
  )
}
