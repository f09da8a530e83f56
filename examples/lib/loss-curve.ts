const LEVELS = '▁▂▃▄▅▆▇█'

/** Losses over steps as rows of text: each column is the mean of as many steps as it stands for. */
export function drawCurve(losses: readonly number[], width = 64, height = 8): string {
  const columns = Math.min(width, losses.length)
  const means = Array.from({ length: columns }, (_, column) => {
    const [from, to] = [column, column + 1].map((i) => Math.floor((i * losses.length) / columns))
    const part = losses.slice(from, to)
    return part.reduce((sum, loss) => sum + loss, 0) / part.length
  })
  const [low, high] = [Math.min(...means), Math.max(...means)]
  const steps = height * LEVELS.length
  const heights = means.map((mean) =>
    Math.max(1, Math.round(((mean - low) / (high - low || 1)) * steps)),
  )
  const rows = Array.from({ length: height }, (_, i) => {
    const below = (height - 1 - i) * LEVELS.length
    const cells = heights.map((filled) => {
      const level = Math.min(LEVELS.length, filled - below)
      return level < 1 ? ' ' : LEVELS[level - 1]!
    })
    const label = i === 0 ? high.toFixed(2) : i === height - 1 ? low.toFixed(2) : ''
    return `${label.padStart(6)} |${cells.join('')}`
  })
  return `${rows.join('\n')}\n  step 1${' '.repeat(Math.max(1, columns - 4))}${losses.length}`
}
