import type { JSX } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import type { Digits } from './training.ts'

const SIDE = 28
const CELL = SIDE + 14

interface Properties {
  readonly digits: Digits
  /** What the network sees in each image; undefined before the first step. */
  readonly seen: readonly number[] | undefined
}

/** The test images, each with the digit that the network sees in it. */
export function DigitGrid({ digits, seen }: Properties): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null)
  const { labels } = digits
  const right = seen?.filter((digit, index) => digit === labels[index]).length
  useEffect(() => {
    const dark = window.matchMedia('(prefers-color-scheme: dark)')
    const redraw = (): void => {
      draw(canvas.current!, digits, seen)
    }
    redraw()
    dark.addEventListener('change', redraw)
    return () => {
      dark.removeEventListener('change', redraw)
    }
  }, [digits, seen])
  const text =
    right === undefined
      ? 'Images that the network is not trained on.'
      : `${right} of ${labels.length} images that it is not trained on are recognized.`
  return (
    <figure>
      <canvas ref={canvas} role="img" aria-label={text} />
      <figcaption>{text}</figcaption>
    </figure>
  )
}

function draw(
  canvas: HTMLCanvasElement,
  { pixels, labels }: Digits,
  seen: readonly number[] | undefined,
): void {
  const { clientWidth } = canvas
  const columns = clientWidth < 360 ? 8 : clientWidth < 540 ? 12 : 16
  canvas.width = 2 * columns * CELL
  canvas.height = 2 * Math.ceil(labels.length / columns) * CELL
  const context = canvas.getContext('2d')!
  const style = getComputedStyle(canvas)
  const colour = (name: string): string => style.getPropertyValue(name)
  context.setTransform(2, 0, 0, 2, 0, 0)
  context.font = '600 12px system-ui, sans-serif'
  const ink = colour('--text')
  for (const [index, label] of labels.entries()) {
    const [x, y] = [(index % columns) * CELL, Math.floor(index / columns) * CELL]
    const image = pixels.subarray(index * SIDE * SIDE, (index + 1) * SIDE * SIDE)
    for (const [pixel, value] of image.entries()) {
      if (value === 0) continue
      context.globalAlpha = value / 255
      context.fillStyle = ink
      context.fillRect(x + (pixel % SIDE), y + Math.floor(pixel / SIDE), 1, 1)
    }
    context.globalAlpha = 1
    const digit = seen?.[index]
    if (digit === undefined) continue
    context.fillStyle = colour(digit === label ? '--good' : '--bad')
    context.fillText(String(digit), x + SIDE, y + CELL - 12)
  }
}
