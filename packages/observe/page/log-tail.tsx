import { useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks'
import type { NumberedLine } from './job-state.ts'

interface Properties {
  readonly lines: readonly NumberedLine[]
  readonly dropped: number
  readonly ranks: readonly number[]
}

const SHOWN = 500

/** The last output lines, which scroll with new output unless the reader has scrolled up. */
export function LogTail({ lines, dropped, ranks }: Properties) {
  const [text, setText] = useState('')
  const [rank, setRank] = useState('')
  const box = useRef<HTMLPreElement>(null)
  const follows = useRef(true)
  const shown = useMemo(() => {
    const wanted = text.toLowerCase()
    return lines
      .filter(
        (line) =>
          (rank === '' || line.rank === Number(rank)) && line.text.toLowerCase().includes(wanted),
      )
      .slice(-SHOWN)
  }, [lines, text, rank])
  useLayoutEffect(() => {
    const element = box.current
    if (element !== null && follows.current) element.scrollTop = element.scrollHeight
  }, [shown])
  return (
    <section aria-labelledby="output">
      <h2 id="output">Output</h2>
      <div class="filters">
        <label>
          Contains{' '}
          <input
            type="search"
            value={text}
            onInput={({ currentTarget }) => {
              setText(currentTarget.value)
            }}
          />
        </label>
        <label>
          Rank{' '}
          <select
            value={rank}
            onChange={({ currentTarget }) => {
              setRank(currentTarget.value)
            }}
          >
            <option value="">all</option>
            {ranks.map((one) => (
              <option key={one} value={one}>
                {one}
              </option>
            ))}
          </select>
        </label>
        <span>
          {shown.length} lines{dropped > 0 && `, ${dropped} more were not sent`}
        </span>
      </div>
      <pre
        ref={box}
        class="output"
        tabIndex={0}
        aria-labelledby="output"
        onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
          follows.current = scrollHeight - scrollTop - clientHeight < 24
        }}
      >
        {shown.map((line) => (
          <div key={line.number} class={line.stream}>
            <b>{line.rank}</b> {line.text}
          </div>
        ))}
      </pre>
    </section>
  )
}
