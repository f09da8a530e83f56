import type { JSX } from 'preact'
import { Choice } from './controls.tsx'
import type { LinkEnds } from './job.ts'

interface Properties {
  /** The number of ranks. */
  readonly ranks: number
  readonly ends: LinkEnds
  readonly disabled?: boolean
  readonly onEnds: (ends: LinkEnds) => void
}

/** Chooses the rank of a fault, and the other end of the link that is cut. */
export function LinkChoices({ ranks, ends, disabled = false, onEnds }: Properties): JSX.Element {
  const { rank, peer } = ends
  const names = Array.from({ length: ranks }, (_, each): [string, string] => [
    String(each),
    `rank ${each}`,
  ])
  return (
    <>
      <Choice<string>
        label="Rank"
        value={String(rank)}
        options={Object.fromEntries(names)}
        disabled={disabled}
        onValue={(value) => {
          const chosen = Number(value)
          onEnds({ rank: chosen, peer: chosen === peer ? rank : peer })
        }}
      />
      <Choice<string>
        label="Its link to"
        value={String(peer)}
        options={Object.fromEntries(names.filter(([name]) => name !== String(rank)))}
        disabled={disabled}
        onValue={(value) => {
          onEnds({ rank, peer: Number(value) })
        }}
      />
    </>
  )
}

/** Adapts the ends of a link to a smaller number of ranks. */
export function endsAmong(ranks: number, { rank, peer }: LinkEnds): LinkEnds {
  const last = ranks - 1
  const [own, other] = [Math.min(rank, last), Math.min(peer, last)]
  return { rank: own, peer: other === own ? (own + last) % ranks : other }
}

/** The report of `tsrun`. Each line is a block, so that a long line continues below its own text. */
export function Report({ text, isDone }: { readonly text: string; readonly isDone: boolean }) {
  return (
    <pre role="status" tabIndex={0} aria-label="Report" data-done={isDone}>
      {text.split('\n').map((line, index) => (
        <span key={index} class={line.startsWith('──') ? 'rule' : ''}>
          {line}
        </span>
      ))}
    </pre>
  )
}
