import { useEffect, useRef, useState } from 'preact/hooks'
import type {
  ChartPoint,
  RecordedStepView,
  RecordedView,
  StepView,
} from '../src/dashboard/views.ts'
import { timeShares } from '../src/trace/shares.ts'
import { Collectives } from './collectives.tsx'
import { millisecondsText, percentText } from './formats.ts'
import { LineChart } from './line-chart.tsx'
import { StepChart } from './step-chart.tsx'
import { Table } from './table.tsx'

interface Properties {
  readonly view: RecordedView
  readonly last: StepView
  readonly points: readonly ChartPoint[]
}

/** A recorded run: how its time was spent, and each of its steps. */
export function Recorded({ view, last, points }: Properties) {
  const [shown, setShown] = useState<RecordedStepView>({ index: view.steps - 1, view: last })
  const { steps } = view.summary
  return (
    <>
      <section aria-labelledby="summary">
        <h2 id="summary">
          {steps === undefined
            ? 'Where the time went'
            : `Where the time of steps ${steps.first} to ${steps.last} went`}
        </h2>
        <Summary view={view} />
      </section>
      <section aria-labelledby="step">
        <h2 id="step">Step {shown.view.step}</h2>
        {view.steps > 1 && <StepChoice count={view.steps} shown={shown} show={setShown} />}
        <StepChart step={shown.view} />
      </section>
      {points.length > 0 && (
        <div class="charts">
          <LineChart title="Loss" points={points} of="loss" over="steps" />
          <LineChart title="Steps per second" points={points} of="stepsPerSecond" over="steps" />
        </div>
      )}
      <section aria-labelledby="collectives">
        <h2 id="collectives">Collectives of step {shown.view.step}</h2>
        <Collectives step={shown.view} />
      </section>
    </>
  )
}

const titles = ['rank', 'step', ...timeShares]

function Summary({ view }: { readonly view: RecordedView }) {
  const { byRank, mean } = view.summary
  const rows = [
    ...byRank.map((each) => ({ ...each, name: String(each.rank) })),
    { ...mean, name: 'all' },
  ]
  return (
    <>
      <Table label="Table of the time of each rank" titles={titles}>
        {rows.map(({ name, step, shares: times }) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td>{millisecondsText(step)}</td>
            {timeShares.map((share) => (
              <td key={share}>{percentText(step === 0 ? 0 : times[share] / step)}</td>
            ))}
          </tr>
        ))}
      </Table>
      {view.sentences.map((sentence) => (
        <p key={sentence} class="facts">
          {sentence}
        </p>
      ))}
    </>
  )
}

interface ChoiceProperties {
  readonly count: number
  readonly shown: RecordedStepView
  readonly show: (step: RecordedStepView) => void
}

/** Selects a step by buttons, a slider, or its number. */
function StepChoice({ count, shown, show }: ChoiceProperties) {
  const [index, setIndex] = useState(shown.index)
  const asked = useRef<AbortController>(undefined)
  const [isLost, setLost] = useState(false)
  useEffect(() => () => asked.current?.abort(), [])
  const ask = (query: string) => {
    asked.current?.abort()
    const controller = new AbortController()
    asked.current = controller
    fetch(`/step?${query}`, { signal: controller.signal })
      .then(async (response) => {
        const step = (await response.json()) as RecordedStepView
        setLost(false)
        setIndex(step.index)
        show(step)
      })
      .catch(() => {
        if (!controller.signal.aborted) setLost(true)
      })
  }
  const go = (to: number) => {
    const next = Math.max(0, Math.min(count - 1, to))
    setIndex(next)
    ask(`index=${next}`)
  }
  const buttons = [
    ['First', 0],
    ['Previous', index - 1],
    ['Next', index + 1],
    ['Last', count - 1],
  ] as const
  return (
    <div class="filters">
      {buttons.map(([name, to]) => (
        <button
          key={name}
          type="button"
          disabled={name === 'First' || name === 'Previous' ? index === 0 : index === count - 1}
          onClick={() => {
            go(to)
          }}
        >
          {name}
        </button>
      ))}
      <input
        type="range"
        min={0}
        max={count - 1}
        value={index}
        aria-label="Position among the recorded steps"
        onInput={({ currentTarget }) => {
          go(Number(currentTarget.value))
        }}
      />
      <label>
        Step{' '}
        <input
          type="number"
          min={0}
          value={shown.view.step}
          onChange={({ currentTarget }) => {
            if (/^\d+$/.test(currentTarget.value)) ask(`number=${currentTarget.value}`)
          }}
        />
      </label>
      {isLost && <span role="status">tsrun view has ended.</span>}
    </div>
  )
}
