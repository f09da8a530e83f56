import { useEffect, useRef } from 'preact/hooks'
import uPlot from 'uplot'
import type { ChartPoint } from '../src/dashboard/views.ts'
import { useDark } from './dark.ts'
import { isKnown, numberText } from './formats.ts'

interface Properties {
  readonly title: string
  readonly points: readonly ChartPoint[]
  readonly of: 'loss' | 'stepsPerSecond' | 'cpu'
  /** The x-axis. */
  readonly over?: 'seconds' | 'steps'
}

const HEIGHT = 150

/** A chart of one quantity over the time or the steps of the job. */
export function LineChart({ title, points, of, over = 'seconds' }: Properties) {
  const place = useRef<HTMLDivElement>(null)
  const plot = useRef<uPlot>(undefined)
  const isDark = useDark()
  useEffect(() => {
    const element = place.current!
    const made = new uPlot(optionsFor(element, title, over), [[], []], element)
    plot.current = made
    const observer = new ResizeObserver(() => {
      made.setSize({ width: element.clientWidth, height: HEIGHT })
    })
    observer.observe(element)
    return () => {
      observer.disconnect()
      made.destroy()
    }
  }, [title, over, isDark])
  useEffect(() => {
    plot.current?.setData([points.map(({ at }) => at), points.map((point) => point[of] ?? null)])
  }, [points, of, over, isDark])
  const latest = points.findLast((point) => isKnown(point[of]))?.[of]
  return (
    <section aria-label={title}>
      <h2>
        {title} <output>{numberText(latest, 4)}</output>
      </h2>
      <div
        ref={place}
        role="img"
        aria-label={`${title} over ${over === 'steps' ? 'the steps' : 'time'}, now ${numberText(latest, 4)}`}
      />
    </section>
  )
}

function optionsFor(element: HTMLElement, label: string, over: 'seconds' | 'steps'): uPlot.Options {
  const style = getComputedStyle(element)
  const colour = (name: string) => style.getPropertyValue(`--${name}`)
  const axis = {
    stroke: colour('muted'),
    grid: { stroke: colour('lane'), width: 1 },
    ticks: { stroke: colour('lane'), width: 1 },
  }
  return {
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false },
    scales: { x: { time: false } },
    axes: [
      {
        ...axis,
        values: (_, ticks) => ticks.map((tick) => (over === 'steps' ? String(tick) : `${tick} s`)),
      },
      { ...axis, size: 56 },
    ],
    series: [{}, { label, stroke: colour('computing'), width: 2, points: { show: false } }],
  }
}
