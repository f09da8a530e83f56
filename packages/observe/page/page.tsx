import type { JobView } from '../src/dashboard/views.ts'
import { ActivityChart } from './activity-chart.tsx'
import { Collectives } from './collectives.tsx'
import { durationText } from './formats.ts'
import { useJobState, type Connection, type JobState } from './job-state.ts'
import { LineChart } from './line-chart.tsx'
import { LinkMatrix } from './link-matrix.tsx'
import { LogTail } from './log-tail.tsx'
import { RankTable } from './rank-table.tsx'
import { Recorded } from './recorded.tsx'
import { StepChart } from './step-chart.tsx'

export function Page() {
  const [state, connection] = useJobState()
  if (state === undefined) {
    return (
      <main>
        <p role="status">{connection === 'lost' ? 'No connection to tsrun.' : 'Connecting …'}</p>
      </main>
    )
  }
  const { job, report, lines, dropped, recorded, step } = state
  const isRecorded = job.phase === 'recorded'
  return (
    <>
      <Header job={job} connection={connection} />
      <main>
        {report !== undefined && (
          <section class="report" aria-labelledby="report">
            <h2 id="report">Report of the failure</h2>
            <pre tabIndex={0} aria-labelledby="report">
              {report}
            </pre>
          </section>
        )}
        {!isRecorded && <Live state={state} />}
        {recorded !== undefined && step !== undefined && (
          <Recorded view={recorded} last={step} points={state.points} />
        )}
        {(!isRecorded || lines.length > 0) && (
          <LogTail lines={lines} dropped={dropped} ranks={job.ranks.map(({ rank }) => rank)} />
        )}
      </main>
    </>
  )
}

function Live({ state }: { readonly state: JobState }) {
  const { job, points, samples, links, step } = state
  return (
    <>
      <section aria-labelledby="ranks">
        <h2 id="ranks">Ranks on {job.host}</h2>
        <RankTable ranks={job.ranks} />
      </section>
      <section aria-labelledby="activity">
        <h2 id="activity">Activity of the last 30 seconds</h2>
        <ActivityChart ranks={job.ranks} samples={samples} />
      </section>
      <section aria-labelledby="step">
        <h2 id="step">Last step</h2>
        {step === undefined ? (
          <p class="none">No step has ended on all ranks yet.</p>
        ) : (
          <StepChart step={step} />
        )}
      </section>
      <div class="charts">
        <LineChart title="Loss" points={points} of="loss" />
        <LineChart title="Steps per second" points={points} of="stepsPerSecond" />
        <LineChart title="CPU: cores in use per rank" points={points} of="cpu" />
      </div>
      {step !== undefined && (
        <section aria-labelledby="collectives">
          <h2 id="collectives">Collectives of the last step</h2>
          <Collectives step={step} />
        </section>
      )}
      {links !== undefined && links.sent.some((row) => row.length > 1) && (
        <section aria-labelledby="links">
          <h2 id="links">Bytes sent between ranks</h2>
          <LinkMatrix links={links} />
        </section>
      )}
    </>
  )
}

function Header({ job, connection }: { readonly job: JobView; readonly connection: Connection }) {
  const { phase, script, command, seconds, runId, worldSize, ranks, restartCount } = job
  const here = ranks.length === worldSize ? '' : `, ${ranks.length} here`
  const attempt = restartCount === 0 ? '' : ` · attempt ${restartCount + 1}`
  // The connection also ends when the job ends.
  const lost = connection === 'lost' && phase === 'running'
  return (
    <header>
      <h1>{script.slice(script.lastIndexOf('/') + 1)}</h1>
      <span class={`phase ${lost ? 'lost' : phase}`} role="status">
        {lost ? 'connection lost' : phase}
      </span>
      <p>
        {runId} · {worldSize} ranks{here}
        {attempt}
        {seconds !== undefined && ` · ${durationText(seconds)}`}
      </p>
      {command !== undefined && <code class="command">{command}</code>}
    </header>
  )
}
