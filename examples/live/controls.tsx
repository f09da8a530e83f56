import type { ComponentChildren, JSX } from 'preact'
import type { LinkCosts } from './collective.ts'
import { timeText } from './formats.ts'

interface SectionProperties {
  readonly id: string
  readonly title: string
  readonly children: ComponentChildren
}

export function Section({ id, title, children }: SectionProperties): JSX.Element {
  return (
    <section id={id} aria-labelledby={`${id}-title`}>
      <h2 id={`${id}-title`}>{title}</h2>
      {children}
    </section>
  )
}

interface ButtonProperties {
  readonly label: string
  readonly isMain?: boolean
  readonly disabled?: boolean
  readonly onPress: () => void
}

/** A button that keeps the focus while it is disabled. */
export function Button(properties: ButtonProperties): JSX.Element {
  const { label, isMain = false, disabled = false, onPress } = properties
  return (
    <button
      type="button"
      class={isMain ? 'main' : ''}
      aria-disabled={disabled}
      onClick={() => {
        if (!disabled) onPress()
      }}
    >
      {label}
    </button>
  )
}

/** Why something did not work; nothing while the text is empty. */
export function Problem({ text }: { readonly text: string }): JSX.Element | null {
  return text === '' ? null : <p role="alert">{text}</p>
}

interface ChoiceProperties<T extends string> {
  readonly label: string
  readonly value: T
  /** The text of each value. */
  readonly options: Readonly<Record<T, string>>
  readonly disabled?: boolean
  readonly onValue: (value: T) => void
}

export function Choice<T extends string>(properties: ChoiceProperties<T>): JSX.Element {
  const { label, value, options, disabled = false, onValue } = properties
  return (
    <label>
      {label}
      <select
        value={value}
        disabled={disabled}
        onChange={({ currentTarget }) => {
          onValue(currentTarget.value as T)
        }}
      >
        {Object.entries<string>(options).map(([name, text]) => (
          <option key={name} value={name}>
            {text}
          </option>
        ))}
      </select>
    </label>
  )
}

const places = { thread: 'this thread', workers: 'a worker each' }

export type Place = keyof typeof places

interface PlaceProperties {
  readonly place: Place
  readonly disabled?: boolean
  readonly onPlace: (place: Place) => void
}

/** Where the ranks of a section run. */
export function PlaceChoice({ place, disabled = false, onPlace }: PlaceProperties): JSX.Element {
  return (
    <Choice
      label="Ranks are in"
      value={place}
      options={places}
      disabled={disabled}
      onValue={onPlace}
    />
  )
}

interface SliderProperties {
  readonly label: string
  /** The value, as the user reads it. */
  readonly text: string
  readonly min: number
  readonly max: number
  readonly step?: number
  readonly value: number
  readonly disabled?: boolean
  readonly onValue: (value: number) => void
}

export function Slider(properties: SliderProperties): JSX.Element {
  const { label, text, min, max, step = 1, value, disabled = false, onValue } = properties
  return (
    <label>
      <span>
        {label}: <b>{text}</b>
      </span>
      <input
        type="range"
        min={min}
        max={max}
        step={step}
        value={value}
        disabled={disabled}
        aria-valuetext={text}
        onInput={({ currentTarget }) => {
          onValue(currentTarget.valueAsNumber)
        }}
      />
    </label>
  )
}

interface LinkProperties {
  readonly costs: LinkCosts
  readonly onCosts: (costs: LinkCosts) => void
}

/** The sliders of the network that the page simulates. Both scales are logarithmic. */
export function LinkSliders({ costs, onCosts }: LinkProperties): JSX.Element {
  const { latency, bandwidth } = costs
  return (
    <>
      <Slider
        label="Latency"
        text={timeText(latency)}
        min={-3}
        max={1}
        step={0.1}
        value={Math.log10(latency)}
        onValue={(power) => {
          onCosts({ latency: 10 ** power, bandwidth })
        }}
      />
      <Slider
        label="Bandwidth"
        text={`${bandwidth.toPrecision(2)} GB/s`}
        min={-2}
        max={2}
        step={0.1}
        value={Math.log10(bandwidth)}
        onValue={(power) => {
          onCosts({ latency, bandwidth: 10 ** power })
        }}
      />
    </>
  )
}

interface FactProperties {
  readonly label: string
  readonly children: ComponentChildren
}

export function Fact({ label, children }: FactProperties): JSX.Element {
  return (
    <div>
      <dd>{children}</dd>
      <dt>{label}</dt>
    </div>
  )
}
