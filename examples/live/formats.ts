/** `16 KiB` */
export function bytesText(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`
  const [size, unit] = bytes < 1 << 20 ? [bytes / 1024, 'KiB'] : [bytes / (1 << 20), 'MiB']
  return `${Number(size.toFixed(1))} ${unit}`
}

/** `1.25 ms`, of milliseconds. */
export function timeText(milliseconds: number): string {
  if (milliseconds < 0.9995) return `${Number((milliseconds * 1000).toPrecision(3))} µs`
  if (milliseconds < 999.5) return `${Number(milliseconds.toPrecision(3))} ms`
  return `${Number((milliseconds / 1000).toPrecision(3))} s`
}

export function percentText(share: number): string {
  return `${(100 * share).toFixed(1)} %`
}

/** The style of what belongs to a rank: its colour, as `--own`. */
export function colourOf(rank: number): string {
  return `--own: var(--rank-${rank})`
}
