import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { Button, Choice, Problem, Section } from './controls.tsx'
import { CALLS, faults, RANKS, type FaultName } from './fault-calls.ts'
import { breakWorld } from './faults.ts'

const names = Object.keys(faults) as FaultName[]
const ranks = Object.fromEntries(Array.from({ length: RANKS }, (_, rank) => [rank, `rank ${rank}`]))

export function FaultsSection(): JSX.Element {
  const [report, setReport] = useState('Nothing has gone wrong yet.')
  const [problem, setProblem] = useState('')
  const [running, setRunning] = useState(false)
  const [victim, setVictim] = useState('2')
  const cause = async (name: FaultName): Promise<void> => {
    setRunning(true)
    setProblem('')
    setReport('The ranks are running …')
    try {
      setReport(await breakWorld(name, Number(victim)))
    } catch (error) {
      setReport('There is no report.')
      setProblem(String(error))
    } finally {
      setRunning(false)
    }
  }
  return (
    <Section id="faults" title="4 · What goes wrong, and what the user is told">
      <p>
        {RANKS} ranks call all-reduce {CALLS} times. Choose a rank and a fault, and read the report
        of <code>tsrun</code>: the first cause, what it means, and how the other ranks ended. A rank
        that is stopped counts as a killed process.
      </p>
      <div class="controls">
        <Choice
          label="Rank"
          value={victim}
          options={ranks}
          disabled={running}
          onValue={setVictim}
        />
        {names.map((name) => (
          <Button
            key={name}
            label={faults[name]}
            disabled={running}
            onPress={() => void cause(name)}
          />
        ))}
      </div>
      <Problem text={problem} />
      <pre role="status" tabIndex={0} aria-label="Report" data-done={!running}>
        {report}
      </pre>
    </Section>
  )
}
