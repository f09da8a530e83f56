/** Colours of the rank prefixes; red is kept for errors. */
const rankColours = [36, 33, 32, 35, 34, 96, 93, 92, 95, 94] as const

interface Output {
  readonly isTTY?: boolean
  getColorDepth?(env?: object): number
}

/** Whether to colour this stream: terminals only, unless NO_COLOR or FORCE_COLOR say otherwise. */
export function wantsColour(output: Output, env: NodeJS.ProcessEnv): boolean {
  if (isSet(env['NO_COLOR'])) return false
  if (isSet(env['FORCE_COLOR'])) return env['FORCE_COLOR'] !== '0' && env['FORCE_COLOR'] !== 'false'
  return output.isTTY === true && env['TERM'] !== 'dumb'
}

/** FORCE_COLOR for ranks, which write to pipes: what this terminal can show. */
export function colourLevel(output: Output, env: NodeJS.ProcessEnv): string {
  const depth = output.getColorDepth?.(env) ?? 4
  return depth >= 24 ? '3' : depth >= 8 ? '2' : '1'
}

/** The text in the colour that belongs to the rank. */
export function inRankColour(text: string, rank: number): string {
  return `\x1b[${rankColours[rank % rankColours.length]!}m${text}\x1b[39m`
}

function isSet(value: string | undefined): boolean {
  return value !== undefined && value !== ''
}
