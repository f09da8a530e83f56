import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { Button, Problem, Section } from './controls.tsx'
import { CALLS, faults, RANKS, type FaultName } from './fault-calls.ts'
import { breakWorld } from './faults.ts'
import type { LinkEnds } from './job.ts'
import { LinkChoices, Report } from './link-choices.tsx'

const names = Object.keys(faults) as FaultName[]

export function FaultsSection(): JSX.Element {
  const [report, setReport] = useState('Nothing has gone wrong yet.')
  const [problem, setProblem] = useState('')
  const [running, setRunning] = useState(false)
  const [ends, setEnds] = useState<LinkEnds>({ rank: 2, peer: 3 })
  const cause = async (name: FaultName): Promise<void> => {
    setRunning(true)
    setProblem('')
    setReport('The ranks are running …')
    try {
      setReport(await breakWorld(name, ends))
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
        {RANKS} ranks call all-reduce {CALLS} times. Choose a rank, one of its links, and a fault,
        and read the report of <code>tsrun</code>: the first cause, what it means, and how the other
        ranks ended. A rank that is stopped counts as a killed process.
      </p>
      <div class="controls">
        <LinkChoices ranks={RANKS} ends={ends} disabled={running} onEnds={setEnds} />
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
      <Report text={report} isDone={!running} />
    </Section>
  )
}
