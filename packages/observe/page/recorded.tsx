import { useEffect, useRef, useState } from 'preact/hooks'
import type { ChartPoint, RecordedView, StepView } from '../src/dashboard/views.ts'
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
  const [shown, show] = useState(last)
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
        <h2 id="step">Step {shown.step}</h2>
        {view.steps.length > 1 && <StepChoice numbers={view.steps} shown={shown} show={show} />}
        <StepChart step={shown} />
      </section>
      {points.length > 0 && (
        <div class="charts">
          <LineChart title="Loss" points={points} of="loss" over="steps" />
          <LineChart title="Steps per second" points={points} of="stepsPerSecond" over="steps" />
        </div>
      )}
      <section aria-labelledby="collectives">
        <h2 id="collectives">Collectives of step {shown.step}</h2>
        <Collectives step={shown} />
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
  /** The numbers of all steps, in order. */
  readonly numbers: readonly number[]
  readonly shown: StepView
  readonly show: (step: StepView) => void
}

/** Selects a step by a slider or by number. A missing number selects the step before it. */
function StepChoice({ numbers, shown, show }: ChoiceProperties) {
  const asked = useRef<AbortController>(undefined)
  const [isLost, setLost] = useState(false)
  useEffect(() => () => asked.current?.abort(), [])
  const ask = (number: number) => {
    asked.current?.abort()
    const controller = new AbortController()
    asked.current = controller
    fetch(`/step?number=${number}`, { signal: controller.signal })
      .then(async (response) => {
        const step = (await response.json()) as StepView
        setLost(false)
        show(step)
      })
      .catch(() => {
        if (!controller.signal.aborted) setLost(true)
      })
  }
  return (
    <div class="filters">
      <input
        type="range"
        min={0}
        max={numbers.length - 1}
        value={numbers.indexOf(shown.step)}
        aria-label="Position among the recorded steps"
        onInput={({ currentTarget }) => {
          ask(numbers[Number(currentTarget.value)]!)
        }}
      />
      <label>
        Step{' '}
        <input
          type="number"
          value={shown.step}
          onChange={({ currentTarget: { valueAsNumber } }) => {
            ask(numbers.findLast((each) => each <= valueAsNumber) ?? shown.step)
          }}
        />
      </label>
      {isLost && <span role="status">tsrun view has ended.</span>}
    </div>
  )
}
