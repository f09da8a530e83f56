import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { Section } from './controls.tsx'
import { breakWorld, CALLS, faults, RANKS, type FaultName } from './faults.ts'
import { timeText } from './formats.ts'

const names = Object.keys(faults) as FaultName[]

export function FaultsSection(): JSX.Element {
  const [report, setReport] = useState('Nothing has gone wrong yet.')
  const [running, setRunning] = useState<FaultName>()
  const cause = async (name: FaultName): Promise<void> => {
    setRunning(name)
    setReport('The ranks are running …')
    setReport(await reportOf(name))
    setRunning(undefined)
  }
  return (
    <Section id="faults" title="4 · What goes wrong, and what the user is told">
      <p>
        {RANKS} ranks call all-reduce {CALLS} times. Choose a fault and read the report: the first
        cause, then the errors of the other ranks.
      </p>
      <div class="controls">
        {names.map((name) => (
          <button
            key={name}
            type="button"
            disabled={running !== undefined}
            onClick={() => {
              void cause(name)
            }}
          >
            {faults[name]}
          </button>
        ))}
      </div>
      <pre role="status" tabIndex={0} aria-label="Report" data-done={running === undefined}>
        {report}
      </pre>
    </Section>
  )
}

/** The report of a job that fails, in the words of `tsrun`. */
async function reportOf(name: FaultName): Promise<string> {
  const start = performance.now()
  const { errors, completed } = await breakWorld(name)
  const after = timeText(performance.now() - start)
  const [first, ...others] = errors.map(({ rank, error }) => ({
    rank,
    text: (error as Error).message,
  }))
  if (first === undefined) return `All ranks have finished, after ${after}.`
  const call = `in call ${completed[first.rank]! + 1} of ${CALLS}, after ${after}`
  // A rank that is stopped has no error of its own.
  const isStopped = name === 'stop'
  const ended = isStopped ? 'was stopped' : 'failed'
  return [
    'tsrun: the job failed',
    '',
    `first cause  rank ${first.rank} of ${RANKS} ${ended}, ${call}`,
    ...(isStopped ? [] : [`error        ${first.text}`]),
    ...others.map(({ rank, text }) =>
      text === first.text
        ? `then         rank ${rank}: the same error`
        : `\nthen         rank ${rank}: ${text}`,
    ),
  ].join('\n')
}
