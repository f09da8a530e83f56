import type { JSX } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { countOf, keepSettings, settingOf } from './address.ts'
import type { LinkCosts } from './collective.ts'
import {
  Button,
  Choice,
  Fact,
  LinkSliders,
  PlaceChoice,
  Problem,
  Section,
  Slider,
  type Place,
} from './controls.tsx'
import { DigitGrid } from './digit-grid.tsx'
import { readDigits } from './digits.ts'
import { faults } from './fault-calls.ts'
import { injectedFault } from './faults.ts'
import { percentText, timeText } from './formats.ts'
import { idealOf } from './ideal.ts'
import type { Inject, LinkEnds } from './job.ts'
import { endsAmong, LinkChoices, Report } from './link-choices.tsx'
import { LossChart } from './loss-chart.tsx'
import { trainInThread } from './thread.ts'
import { Timeline } from './timeline.tsx'
import {
  lessons,
  scaleDurations,
  scheduleOf,
  simulationOf,
  type DigitSets,
  type Durations,
  type Layout,
  type TrainedStep,
} from './training.ts'
import { trainInWorkers } from './workers.ts'

const STEPS = 20
/** Steps that the page trains when it opens, to measure durations. The first also compiles. */
const FIRST_STEPS = 2
/** Milliseconds in which the page draws a step, if the user watches. */
const PACE = 900

const paces = { watch: 'step by step', fast: 'as fast as possible' }

const fewestRanks = 2
const mostRanks = 8
const mostMicrobatches = 16
const firstLayout: Layout = { lesson: '1f1b', ranks: 4, microbatches: 8 }
/** Before anything is measured: equal stages, and backward passes of twice the time, in milliseconds. */
const initialDurations: Durations = {
  F: [1, 1, 1, 1],
  B: [2, 2, 2, 2],
  I: [1, 1, 1, 1],
  W: [1, 1, 1, 1],
}

function layoutOfAddress(): Layout {
  const { lesson, ranks, microbatches } = firstLayout
  return {
    lesson: settingOf('schedule', lessons, lesson),
    ranks: countOf('ranks', fewestRanks, mostRanks, ranks),
    microbatches: countOf('microbatches', 1, mostMicrobatches, microbatches),
  }
}

interface Training {
  readonly layout: Layout
  readonly steps: readonly TrainedStep[]
}

interface Properties {
  readonly costs: LinkCosts
  readonly onCosts: (costs: LinkCosts) => void
}

/** Lessons 04 to 06: a pipeline that trains, on a clock with the durations of this machine. */
export function PipelineSection({ costs, onCosts }: Properties): JSX.Element {
  const [sets, setSets] = useState<DigitSets>()
  const [layout, setLayout] = useState(layoutOfAddress)
  const [place, setPlace] = useState<Place>('thread')
  const [pace, setPace] = useState<keyof typeof paces>('watch')
  const [measured, setMeasured] = useState({ layout: firstLayout, durations: initialDurations })
  const [training, setTraining] = useState<Training>({ layout: firstLayout, steps: [] })
  const [firstStep, setFirstStep] = useState<number>()
  const [isRunning, setRunning] = useState(false)
  const [problem, setProblem] = useState('')
  const [played, setPlayed] = useState(1)
  const [report, setReport] = useState('')
  const [chosenEnds, setEnds] = useState<LinkEnds>({ rank: 2, peer: 1 })
  const isStopped = useRef(false)
  const inject = useRef<Inject>(() => undefined)

  const run = async (digits: DigitSets, steps: number, isWatched: boolean): Promise<void> => {
    setRunning(true)
    setProblem('')
    setReport('')
    setTraining({ layout, steps: [] })
    isStopped.current = false
    const onStep = async (step: TrainedStep): Promise<boolean> => {
      setFirstStep((before) => before ?? performance.now())
      setMeasured({ layout, durations: step.durations })
      setTraining((before) => ({ layout, steps: [...before.steps, step] }))
      if (isWatched) await play(setPlayed)
      else await nextFrame()
      return step.step < steps && !isStopped.current
    }
    try {
      if (place === 'workers') await trainInWorkers(layout, digits, onStep)
      else {
        const failure = await trainInThread(layout, digits, onStep, (given) => {
          inject.current = given
        })
        setReport(failure)
      }
    } catch (error) {
      setProblem((error as Error).message)
    }
    setPlayed(1)
    setRunning(false)
  }

  useEffect(() => {
    const start = async (): Promise<void> => {
      const digits = await readDigits()
      setSets(digits)
      await run(digits, FIRST_STEPS, false)
    }
    void start().catch((error: unknown) => {
      setProblem((error as Error).message)
    })
  }, [])

  const { ranks, microbatches } = layout
  const change = (part: Partial<Layout>): void => {
    const next = { ...layout, ...part }
    setLayout(next)
    keepSettings({
      schedule: next.lesson,
      ranks: next.ranks,
      microbatches: next.microbatches,
    })
  }
  const { steps } = training
  const ends = endsAmong(ranks, chosenEnds)
  return (
    <Section id="pipeline" title="3 · A pipeline that trains (lessons 04 to 06)">
      <p>
        The network of the lessons, with 16 layers of 256, learns digits. It begins with their seed
        and learns with SGD, as there, but with momentum, a higher learning rate and a smaller
        batch, so that 20 steps are enough. The ranks really train; one thread cannot show how they
        overlap, so the timeline runs on a simulated clock: passes take as long as was measured in
        this page, messages as long as the sliders say.
      </p>
      <div class="controls">
        <Choice
          label="Schedule"
          value={layout.lesson}
          options={lessons}
          disabled={isRunning}
          onValue={(lesson) => {
            change({ lesson })
          }}
        />
        <Slider
          label="Ranks"
          text={`${ranks} (${scheduleOf(layout).stages} stages)`}
          min={fewestRanks}
          max={mostRanks}
          value={ranks}
          disabled={isRunning}
          onValue={(value) => {
            change({ ranks: value })
          }}
        />
        <Slider
          label="Micro-batches"
          text={String(microbatches)}
          min={1}
          max={mostMicrobatches}
          value={microbatches}
          disabled={isRunning}
          onValue={(value) => {
            change({ microbatches: value })
          }}
        />
        <LinkSliders costs={costs} onCosts={onCosts} />
        <PlaceChoice place={place} disabled={isRunning} onPlace={setPlace} />
        <Choice label="Draw" value={pace} options={paces} disabled={isRunning} onValue={setPace} />
        <Button
          label={`Train ${STEPS} steps`}
          isMain
          disabled={isRunning || sets === undefined}
          onPress={() => {
            void run(sets!, STEPS, pace === 'watch')
          }}
        />
        <Button
          label="Stop"
          disabled={!isRunning}
          onPress={() => {
            isStopped.current = true
          }}
        />
      </div>
      <div class="controls">
        <LinkChoices ranks={ranks} ends={ends} onEnds={setEnds} />
        {(['stop', 'cut'] as const).map((name) => (
          <Button
            key={name}
            label={faults[name]}
            disabled={!isRunning || place === 'workers'}
            onPress={() => {
              inject.current(injectedFault(name, ends)!)
            }}
          />
        ))}
        <p>While the ranks train in this thread, stop one or cut a link, and read the report.</p>
      </div>
      <Problem text={problem} />
      {report !== '' && <Report text={report} isDone={!isRunning} />}
      <Plan
        layout={layout}
        costs={costs}
        measured={measured}
        training={training}
        played={played}
        firstStep={firstStep}
      />
      <div class="two">
        <LossChart losses={steps.map(({ loss }) => loss)} steps={Math.max(STEPS, steps.length)} />
        {sets !== undefined && <DigitGrid digits={sets.test} seen={steps.at(-1)?.seen} />}
      </div>
      <details>
        <summary>All digits of the losses</summary>
        <p>
          In a clone of tsrun, this command prints the same losses, with a process for each rank:{' '}
          <code>{commandOf(training.layout)}</code>
        </p>
        <ol class="losses" data-done={!isRunning && steps.length > 0}>
          {steps.map(({ step, loss }) => (
            <li key={step}>{loss}</li>
          ))}
        </ol>
      </details>
    </Section>
  )
}

interface PlanProperties {
  readonly layout: Layout
  readonly costs: LinkCosts
  readonly measured: { readonly layout: Layout; readonly durations: Durations }
  readonly training: Training
  readonly played: number
  readonly firstStep: number | undefined
}

/** The timeline of a step, and its figures. */
function Plan({ layout, costs, measured, training, played, firstStep }: PlanProperties) {
  const { lesson } = layout
  const { bubble, formula } = idealOf(layout)
  const isSame = isEqual(layout, measured.layout)
  const durations = isSame
    ? measured.durations
    : scaleDurations(measured.durations, measured.layout, layout)
  const schedule = scheduleOf(layout)
  const options = simulationOf(layout, durations, costs)
  const simulation = schedule.simulate(options)
  const latest = isEqual(layout, training.layout) ? training.steps.at(-1) : undefined
  const held = latest?.held ?? simulation.ranks.map(({ peakInFlight }) => peakInFlight)
  const mean = (values: readonly number[]): string =>
    timeText(values.reduce((sum, value) => sum + value, 0) / values.length)
  const { F, B, I, W } = durations
  const backward = lesson === 'zb-h1' ? `${mean(I)} + ${mean(W)}` : mean(B)
  return (
    <>
      <dl class="facts">
        <Fact label="idle on this clock">{percentText(simulation.bubble)}</Fact>
        <Fact label="idle ideally: equal stages, free messages, a backward pass of twice the forward">
          <small>
            {formula !== undefined && `${formula} = `}
            {percentText(bubble)}
          </small>
        </Fact>
        <Fact label={`forward / backward of a stage, ${isSame ? 'measured' : 'estimated'}`}>
          {mean(F)} / {backward}
        </Fact>
        <Fact label="micro-batches held, by rank">{held.join(' · ')}</Fact>
        <Fact label={`loss after ${latest?.step ?? 0} steps`}>
          {latest === undefined ? '–' : latest.loss.toFixed(4)}
        </Fact>
        <Fact label="a real step in this page">
          {latest === undefined ? '–' : timeText(latest.milliseconds)}
        </Fact>
        {firstStep !== undefined && (
          <Fact label="from opening the page to the first step">
            <span id="first-step" data-milliseconds={firstStep}>
              {timeText(firstStep)}
            </span>
          </Fact>
        )}
      </dl>
      <Timeline schedule={schedule} durations={options} played={played} />
      <ul class="legend">
        <li class="F">F forward</li>
        <li class="B">B backward</li>
        {lesson === 'zb-h1' && (
          <>
            <li class="I">I gradient of the input</li>
            <li class="W">W gradients of the weights</li>
          </>
        )}
        <li class="idle">idle: the bubble</li>
        <li class="path">the critical path</li>
        <li class="message">a message</li>
        <li>times in milliseconds</li>
      </ul>
    </>
  )
}

/** The command that trains alike in Node. */
function commandOf({ lesson, ranks, microbatches }: Layout): string {
  const flags = `--schedule ${lesson} --microbatches ${microbatches}`
  return `npx tsrun --nproc ${ranks} examples/live-page.ts ${flags}`
}

function isEqual(a: Layout, b: Layout): boolean {
  return a.lesson === b.lesson && a.ranks === b.ranks && a.microbatches === b.microbatches
}

/** Draws a step from its beginning to its end. */
async function play(onPlayed: (part: number) => void): Promise<void> {
  if (window.matchMedia('(prefers-reduced-motion: reduce)').matches) return
  const start = performance.now()
  for (let part = 0; part < 1; part = (performance.now() - start) / PACE) {
    onPlayed(part)
    await nextFrame()
  }
  onPlayed(1)
}

/** Resolves after the next drawing, or soon if the page is hidden. */
async function nextFrame(): Promise<void> {
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, 100)
    requestAnimationFrame(() => {
      clearTimeout(timer)
      setTimeout(resolve)
    })
  })
}
