import type { RankActivity } from '@tsrun/distributed/record'
import type { RankView } from '../src/dashboard/views.ts'
import { Drawing, type Surface } from './drawing.tsx'
import { percentText } from './formats.ts'
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
export function ActivityChart({ ranks, samples }: Properties) {
  const height = Math.max(1, ranks.length) * (ROW + GAP)
  const parts = shown.map((activity) => [activity, share(samples, activity)] as const)
  const texts = parts.map(([activity, part]) => `${activity} ${percentText(part)}`)
  return (
    <>
      <Drawing
        label={`What ${ranks.length} ranks did: ${texts.join(', ')}`}
        height={height}
        draw={(surface) => {
          draw(surface, ranks, samples)
        }}
        input={ranks}
      />
      <ul class="legend">
        {parts.map(([activity, part], i) => (
          <li key={activity}>
            <span class={`dot ${activity}`} aria-hidden="true" />
            {part === undefined ? activity : texts[i]}
          </li>
        ))}
      </ul>
    </>
  )
}

function draw(
  { context, width, font, snap, colour }: Surface,
  ranks: readonly RankView[],
  samples: readonly ActivitySample[],
) {
  context.font = `12px ${font}`
  const last = samples.at(-1)?.at ?? 0
  const scale = (width - MARGIN) / ACTIVITY_SECONDS
  const x = (at: number) => snap(width - (last - at) * scale)
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

function share(samples: readonly ActivitySample[], activity: RankActivity) {
  const all = samples.flatMap(({ ranks }) => [...ranks.values()])
  const sum = all.reduce((total, parts) => total + (parts[activity] ?? 0), 0)
  return all.length === 0 ? undefined : sum / all.length
}
