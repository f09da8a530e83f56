import type { ComponentChildren } from 'preact'

interface Properties {
  /** Accessible name of the scrolling region. */
  readonly label: string
  readonly titles: readonly (string | number)[]
  readonly class?: string
  readonly children: ComponentChildren
}

/** A table that scrolls horizontally on narrow screens. */
export function Table({ label, titles, children, class: name }: Properties) {
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
