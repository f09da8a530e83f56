/** `312 MiB`, `1.5 GiB`. */
export function formatBytes(bytes: number): string {
  const [size, unit] = bytes < 2 ** 30 ? [bytes / 2 ** 20, 'MiB'] : [bytes / 2 ** 30, 'GiB']
  return `${size < 10 ? size.toFixed(1) : String(Math.round(size))} ${unit}`
}

/** `3.2 s`, `4 min 10 s`, `2 h 5 min`. */
export function formatSeconds(seconds: number): string {
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`
  const minutes = Math.floor(seconds / 60)
  if (minutes < 120) return `${minutes} min ${Math.floor(seconds % 60)} s`
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`
}
