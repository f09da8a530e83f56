import { useEffect, useRef } from 'preact/hooks'
import { useDark } from './dark.ts'

/** A canvas that is drawn in CSS pixels with the colours of the style sheet. */
export type Surface = ReturnType<typeof surfaceOf>

function surfaceOf(canvas: HTMLCanvasElement, height: number) {
  const context = canvas.getContext('2d')!
  const { clientWidth: width } = canvas
  const ratio = window.devicePixelRatio
  canvas.width = width * ratio
  canvas.height = height * ratio
  context.scale(ratio, ratio)
  context.textBaseline = 'middle'
  const style = getComputedStyle(canvas)
  return {
    context,
    width,
    pixel: 1 / ratio,
    font: style.fontFamily,
    // Align with whole pixels, because partly covered pixels look pale.
    snap: (at: number) => Math.round(at * ratio) / ratio,
    colour: (name: string) => style.getPropertyValue(`--${name}`),
  }
}

interface Properties {
  readonly label: string
  readonly height: number
  readonly draw: (surface: Surface) => void
  /** The canvas is redrawn when this value changes. */
  readonly input: unknown
}

/** A canvas as wide as its container. */
export function Drawing({ label, height, draw, input }: Properties) {
  const canvas = useRef<HTMLCanvasElement>(null)
  const isDark = useDark()
  useEffect(() => {
    draw(surfaceOf(canvas.current!, height))
  }, [input, height, isDark])
  return <canvas ref={canvas} role="img" style={{ height: `${height}px` }} aria-label={label} />
}
