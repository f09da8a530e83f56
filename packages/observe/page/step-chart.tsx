import { barKinds, type Bar, type BarKind, type StepView } from '../src/dashboard/views.ts'
import { Drawing, type Surface } from './drawing.tsx'
import { millisecondsText, percentText } from './formats.ts'

/** Heights in pixels of the measured and ideal lanes and of the gaps after them; the width of labels. */
const [MEASURED, IDEAL, INNER, GAP, MARGIN] = [20, 9, 2, 7, 36]

const words: Readonly<Record<BarKind, string>> = {
  F: 'forward',
  B: 'backward',
  I: 'backward of inputs',
  W: 'backward of weights',
  optimizer: 'update',
  communication: 'communication',
  waiting: 'waiting',
  input: 'input',
  overhead: 'overhead',
}

/** The shares of lost time, named as in `tsrun trace`. */
const lost = {
  bubble: 'bubble',
  imbalance: 'imbalance',
  communication: 'exposed communication',
  input: 'input',
  overhead: 'overhead',
} as const

/** The last step of all ranks: the measured schedule above the ideal one. */
export function StepChart({ step }: { readonly step: StepView }) {
  const hasIdeal = step.idealMilliseconds !== undefined
  const row = MEASURED + (hasIdeal ? INNER + IDEAL : 0) + GAP
  const shown = barKinds.filter((_, kind) =>
    step.ranks.some(({ bars }) => bars.some((bar) => bar[0] === kind)),
  )
  const ideal = hasIdeal
    ? `, the ideal schedule takes ${millisecondsText(step.idealMilliseconds)}`
    : ''
  const losses = Object.entries(lost).map(
    ([share, word]) => `${word} ${percentText(meanShare(step, share as keyof typeof lost))}`,
  )
  const label = `Step ${step.step} of ${step.ranks.length} ranks: ${millisecondsText(step.milliseconds)}${ideal}`
  return (
    <>
      <p class="facts">
        Step <b>{step.step}</b> took <b>{millisecondsText(step.milliseconds)}</b>
        {ideal}.
      </p>
      <Drawing
        label={label}
        height={step.ranks.length * row}
        draw={(surface) => {
          draw(surface, step, row)
        }}
        input={step}
      />
      <ul class="legend">
        {shown.map((kind) => (
          <li key={kind}>
            <span class={`dot bar-${kind}`} aria-hidden="true" />
            {words[kind]}
          </li>
        ))}
      </ul>
      <p class="facts">
        Compute {percentText(meanShare(step, 'compute'))}. Lost: {losses.join(', ')}.
        {hasIdeal && ' The thin lane below each rank is the ideal schedule.'}
      </p>
    </>
  )
}

function meanShare({ ranks }: StepView, share: keyof StepView['ranks'][number]['shares']) {
  const time = ranks.reduce((sum, { milliseconds }) => sum + milliseconds, 0)
  const part = ranks.reduce((sum, { shares }) => sum + shares[share], 0)
  return time === 0 ? 0 : part / time
}

function draw({ context, width, pixel, font, snap, colour }: Surface, step: StepView, row: number) {
  const scale = (width - MARGIN) / Math.max(step.milliseconds, step.idealMilliseconds ?? 0)
  const lane = (bars: readonly Bar[], y: number, size: number) => {
    context.fillStyle = colour('lane')
    context.fillRect(MARGIN, y, width - MARGIN, size)
    // Draw short bars last and at least one pixel wide, because long bars would hide them.
    const byLength = bars.toSorted((a, b) => b[2] - b[1] - (a[2] - a[1]))
    for (const [kind, start, end, microbatch] of byLength) {
      const x = snap(MARGIN + start * scale)
      const length = Math.max(pixel, snap(MARGIN + end * scale - 0.5) - x)
      context.fillStyle = colour(`bar-${barKinds[kind]!}`)
      context.fillRect(x, y, length, size)
      if (microbatch < 0 || size < MEASURED || length < 14) continue
      context.fillStyle = colour('bar-text')
      context.textAlign = 'center'
      context.fillText(String(microbatch), x + length / 2, y + size / 2)
    }
  }
  for (const [index, { rank, bars, ideal }] of step.ranks.entries()) {
    const y = index * row
    context.font = `12px ${font}`
    context.textAlign = 'left'
    context.fillStyle = colour('muted')
    context.fillText(String(rank), 0, y + MEASURED / 2)
    context.font = `11px ${font}`
    lane(bars, y, MEASURED)
    if (ideal !== undefined) lane(ideal, y + MEASURED + INNER, IDEAL)
  }
}
