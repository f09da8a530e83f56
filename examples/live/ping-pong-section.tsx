import type { JSX } from 'preact'
import { useState } from 'preact/hooks'
import { bytesTime, type LinkCosts } from './collective.ts'
import { Button, Fact, PlaceChoice, Problem, Section, type Place } from './controls.tsx'
import { bytesText, timeText } from './formats.ts'
import { fitCosts, pingPong, type MessageTime } from './ping-pong.ts'
import { pingPongInWorkers } from './workers.ts'

interface Properties {
  /** Called when the user chooses the measured figures for the simulated network. */
  readonly onCosts: (costs: LinkCosts) => void
}

/** Lesson 03: what a message costs. */
export function PingPongSection({ onCosts }: Properties): JSX.Element {
  const [times, setTimes] = useState<readonly MessageTime[]>([])
  const [place, setPlace] = useState<Place>('thread')
  const [isMeasuring, setMeasuring] = useState(false)
  const [problem, setProblem] = useState('')
  const measure = async (): Promise<void> => {
    setMeasuring(true)
    setTimes([])
    setProblem('')
    try {
      await (place === 'workers' ? pingPongInWorkers : pingPong)((time) => {
        setTimes((before) => [...before, time])
      })
    } catch (error) {
      setProblem((error as Error).message)
    } finally {
      setMeasuring(false)
    }
  }
  const fitted = isMeasuring || problem !== '' || times.length === 0 ? undefined : fitCosts(times)
  return (
    <Section id="ping-pong" title="2 · What a message costs (lesson 03)">
      <p>
        Two ranks send a message back and forth. The time follows α + bytes / β: the latency α of
        small messages, and the bandwidth β of large ones. Within one thread, a message is a copy in
        memory; between two workers, it goes through a MessageChannel.
      </p>
      <div class="controls">
        <PlaceChoice place={place} disabled={isMeasuring} onPlace={setPlace} />
        <Button
          label="Measure"
          isMain
          disabled={isMeasuring}
          onPress={() => {
            void measure()
          }}
        />
        <Button
          label="Use these figures for the network"
          disabled={fitted === undefined}
          onPress={() => {
            onCosts(fitted!)
          }}
        />
      </div>
      <Problem text={problem} />
      {times.length > 0 && (
        <div class="two">
          <MessageChart times={times} fitted={fitted} />
          <dl class="facts" aria-live="polite">
            {times.map(({ bytes, milliseconds }) => (
              <Fact key={bytes} label={bytesText(bytes)}>
                {timeText(milliseconds)}
              </Fact>
            ))}
            {fitted !== undefined && (
              <>
                <Fact label="latency α">{timeText(fitted.latency)}</Fact>
                <Fact label="bandwidth β">{fitted.bandwidth.toPrecision(2)} GB/s</Fact>
              </>
            )}
          </dl>
        </div>
      )}
    </Section>
  )
}

const WIDTH = 520
const HEIGHT = 220
const LEFT = 64
const BOTTOM = 28

interface ChartProperties {
  readonly times: readonly MessageTime[]
  readonly fitted: LinkCosts | undefined
}

/** Times by size, both on logarithmic axes, and the line of the model. */
function MessageChart({ times, fitted }: ChartProperties): JSX.Element {
  const exponents = times.map(({ milliseconds }) => Math.log10(milliseconds))
  const [low, high] = [Math.floor(Math.min(...exponents)), Math.ceil(Math.max(...exponents))]
  const x = (bytes: number): number => LEFT + ((WIDTH - LEFT - 20) * (Math.log2(bytes) - 2)) / 18
  const y = (milliseconds: number): number =>
    10 + (HEIGHT - BOTTOM - 10) * (1 - (Math.log10(milliseconds) - low) / Math.max(1, high - low))
  const sizes = Array.from({ length: 37 }, (_, half) => 2 ** (2 + half / 2))
  const line = fitted && sizes.map((bytes) => [bytes, fitted.latency + bytesTime(bytes, fitted)])
  return (
    <svg
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      role="img"
      aria-label="the time of a message by its size"
    >
      {Array.from({ length: high - low + 1 }, (_, step) => 10 ** (low + step)).map((time) => (
        <g key={time}>
          <line class="grid" x1={LEFT} x2={WIDTH - 10} y1={y(time)} y2={y(time)} />
          <text class="end" x={LEFT - 8} y={y(time) + 4}>
            {timeText(time)}
          </text>
        </g>
      ))}
      {[4, 1 << 10, 1 << 20].map((bytes) => (
        <text key={bytes} class="middle" x={x(bytes)} y={HEIGHT - 8}>
          {bytesText(bytes)}
        </text>
      ))}
      {line !== undefined && (
        <polyline
          class="model"
          points={line.map(([at, time]) => `${x(at!)},${y(time!)}`).join(' ')}
        />
      )}
      {times.map(({ bytes, milliseconds }) => (
        <circle key={bytes} class="point" cx={x(bytes)} cy={y(milliseconds)} r={4} />
      ))}
    </svg>
  )
}
