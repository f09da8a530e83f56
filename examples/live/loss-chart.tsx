import type { JSX } from 'preact'

const WIDTH = 520
const HEIGHT = 180
const LEFT = 36

interface Properties {
  readonly losses: readonly number[]
  /** The steps of the whole training. */
  readonly steps: number
}

export function LossChart({ losses, steps }: Properties): JSX.Element {
  const most = Math.max(2.5, ...losses)
  const x = (index: number): number => LEFT + ((WIDTH - LEFT - 12) * index) / Math.max(1, steps - 1)
  const y = (loss: number): number => 10 + (HEIGHT - 34) * (1 - loss / most)
  const last = losses.length - 1
  return (
    <figure>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label="the loss of each step">
        {[0, 1, 2].map((loss) => (
          <g key={loss}>
            <line class="grid" x1={LEFT} x2={WIDTH - 12} y1={y(loss)} y2={y(loss)} />
            <text class="end" x={LEFT - 8} y={y(loss) + 4}>
              {loss}
            </text>
          </g>
        ))}
        <polyline
          class="model"
          points={losses.map((loss, index) => `${x(index)},${y(loss)}`).join(' ')}
        />
        {last >= 0 && <circle class="point" cx={x(last)} cy={y(losses[last]!)} r={4} />}
        <text class="end" x={WIDTH - 12} y={HEIGHT - 4}>
          step {steps}
        </text>
      </svg>
      <figcaption>
        The loss. It is the same with every schedule, but for the rounding of sums in another order.
      </figcaption>
    </figure>
  )
}
