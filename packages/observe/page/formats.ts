const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB']

export function bytesText(bytes: number | undefined): string {
  if (bytes === undefined) return '–'
  const unit = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, bytes)) / 10))
  const value = bytes / 1024 ** unit
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toPrecision(3)} ${units[unit]!}`
}

export function durationText(seconds: number): string {
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60]
  if (hours > 0) return `${hours} h ${minutes} min`
  const rest = `${Math.floor(seconds % 60)} s`
  return minutes > 0 ? `${minutes} min ${rest}` : rest
}

export function millisecondsText(milliseconds: number | undefined): string {
  if (milliseconds === undefined) return '–'
  if (Math.abs(milliseconds) >= 1000) return `${(milliseconds / 1000).toPrecision(3)} s`
  return `${Math.abs(milliseconds) >= 100 ? Math.round(milliseconds) : milliseconds.toFixed(2)} ms`
}

/** JSON contains null instead of NaN and infinities. */
export function isKnown(value: number | null | undefined): value is number {
  return value !== undefined && value !== null && Number.isFinite(value)
}

export function numberText(value: number | undefined, digits = 3): string {
  return isKnown(value) ? value.toPrecision(digits) : '–'
}

export function percentText(fraction: number | undefined): string {
  return fraction === undefined ? '–' : `${Math.round(100 * fraction)} %`
}
