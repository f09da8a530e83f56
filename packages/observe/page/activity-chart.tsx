import type { JSX } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import type { RankActivity } from '@tsrun/distributed/record'
import type { RankView } from '../src/dashboard/views.ts'
import { ACTIVITY_SECONDS, type ActivitySample } from './job-state.ts'

const shown = [
  'computing',
  'communicating',
  'waiting',
  'idle',
] as const satisfies readonly RankActivity[]
/** Heights in pixels of a rank's lane and of the gap after it, and the width of the labels. */
const [ROW, GAP, MARGIN] = [14, 3, 36]

interface Properties {
  readonly ranks: readonly RankView[]
  readonly samples: readonly ActivitySample[]
}

/** A lane for each rank with its activity, sampled ten times a second. */
export function ActivityChart({ ranks, samples }: Properties): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null)
  const height = Math.max(1, ranks.length) * (ROW + GAP)
  useEffect(() => {
    if (canvas.current !== null) draw(canvas.current, ranks, samples, height)
  }, [ranks, samples, height])
  return (
    <>
      <canvas
        ref={canvas}
        role="img"
        style={{ height: `${height}px` }}
        aria-label={describe(ranks, samples)}
      />
      <ul class="legend">
        {shown.map((activity) => (
          <li key={activity}>
            <span class={`dot ${activity}`} aria-hidden="true" />
            {activity} {percent(share(samples, activity))}
          </li>
        ))}
      </ul>
    </>
  )
}

function draw(
  canvas: HTMLCanvasElement,
  ranks: readonly RankView[],
  samples: readonly ActivitySample[],
  height: number,
): void {
  const context = canvas.getContext('2d')
  if (context === null) return
  const { clientWidth: width } = canvas
  const ratio = window.devicePixelRatio
  canvas.width = width * ratio
  canvas.height = height * ratio
  context.scale(ratio, ratio)
  const style = getComputedStyle(canvas)
  const colour = (name: string): string => style.getPropertyValue(`--${name}`)
  context.font = `12px ${style.fontFamily}`
  context.textBaseline = 'middle'
  const last = samples.at(-1)?.at ?? 0
  const scale = (width - MARGIN) / ACTIVITY_SECONDS
  // Snap to whole pixels: partial ones would be pale.
  const x = (at: number): number => Math.round((width - (last - at) * scale) * ratio) / ratio
  for (const [row, { rank }] of ranks.entries()) {
    const y = row * (ROW + GAP)
    context.fillStyle = colour('muted')
    context.fillText(String(rank), 0, y + ROW / 2)
    context.fillStyle = colour('lane')
    context.fillRect(MARGIN, y, width - MARGIN, ROW)
    for (const [index, sample] of samples.entries()) {
      const from = samples[index - 1]?.at
      if (from === undefined) continue
      const left = Math.max(MARGIN, x(from))
      let bottom = y + ROW
      for (const activity of shown) {
        const size = ROW * (sample.ranks.get(rank)?.[activity] ?? 0)
        bottom -= size
        context.fillStyle = colour(activity)
        context.fillRect(left, bottom, x(sample.at) - left, size)
      }
    }
  }
}

function share(samples: readonly ActivitySample[], activity: RankActivity): number | undefined {
  const all = samples.flatMap(({ ranks }) => [...ranks.values()])
  const sum = all.reduce((total, parts) => total + (parts[activity] ?? 0), 0)
  return all.length === 0 ? undefined : sum / all.length
}

function percent(part: number | undefined): string {
  return part === undefined ? '' : `${Math.round(100 * part)} %`
}

function describe(ranks: readonly RankView[], samples: readonly ActivitySample[]): string {
  const parts = shown.map((activity) => `${activity} ${percent(share(samples, activity)) || '–'}`)
  return `What ${ranks.length} ranks did: ${parts.join(', ')}`
}
