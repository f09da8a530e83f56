import type { ComponentChildren, JSX } from 'preact'

interface Properties {
  /** What the region that scrolls is called. */
  readonly label: string
  readonly titles: readonly (string | number)[]
  readonly class?: string
  /** The rows. */
  readonly children: ComponentChildren
}

/** A table that scrolls by itself where the screen is narrower. */
export function Table({ label, titles, children, class: name }: Properties): JSX.Element {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table class={name}>
        <thead>
          <tr>
            {titles.map((title) => (
              <th key={title} scope="col">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  )
}
