import { styleText } from 'node:util'
import { visibleText } from '@tsrun/core'
import { fillTemplate, type RankFacts } from '../args/log-prefix.ts'
import type { LogFormat, OutputOptions } from '../args/output-options.ts'
import { jsonLine, collapseProgress, withoutCodes, type Line, type StreamName } from './lines.ts'
import { prettyLine } from './pretty-line.ts'

/** Formats output of one stream of a rank for the console. Returns '' if there is nothing to print. */
export interface Presenter {
  /** The stream to write to; in the JSON format, stdout for both streams. */
  readonly output: StreamName
  readonly present: (line: Line) => string
  /** Returns the remaining text when the stream has ended. */
  readonly end: () => string
}

export interface Presentation {
  readonly format: LogFormat
  readonly colour: Readonly<Record<StreamName, boolean>>
  /** The template of `--log-prefix`, for `pretty`. */
  readonly prefix: string | undefined
  /** Returns the time of the lines in milliseconds since 1970; default: the current time. */
  readonly clock?: () => number
}

export function makePresenter(how: Presentation, facts: RankFacts, stream: StreamName): Presenter {
  const { format, clock } = how
  const { rank, worldSize } = facts
  const time = clock ?? Date.now
  const inWholeLines = (output: StreamName, make: (text: string) => string): Presenter => {
    const collapser = collapseProgress(clock)
    const show = (text: string | undefined): string => (text === undefined ? '' : make(text))
    return {
      output,
      present: (line) => show(collapser.push(line)),
      end: () => show(collapser.flush()),
    }
  }
  const asWritten = (make: (text: string) => string): Presenter => ({
    output: stream,
    present: ({ text, end }) => make(text) + end,
    end: () => '',
  })
  if (format === 'json') {
    return inWholeLines('stdout', (line) =>
      jsonLine({ time: new Date(time()).toISOString(), rank, stream, line }),
    )
  }
  // A single rank has the console to itself, so its progress bars may overwrite and erase their line.
  const isAlone = worldSize === 1
  if (format === 'raw') {
    return isAlone ? asWritten((text) => text) : inWholeLines(stream, (text) => `${text}\n`)
  }
  const make = (text: string): string =>
    stream === 'stdout' ? text : (prettyLine(text, true) ?? text)
  const colour = how.colour[stream]
  const template = how.prefix
  if (isAlone && template === undefined) {
    const show = colour ? visibleLine : withoutCodes
    return asWritten((text) => show(make(text)))
  }
  const usual = rankPrefix(rank, worldSize, colour)
  const prefix =
    template === undefined
      ? () => usual
      : () => coloured(fillTemplate(template, { facts, stream, time: time() }), rank, colour)
  return inWholeLines(stream, (text) => withPrefix(prefix(), visibleText(make(text), colour)))
}

/** Unlike `visibleText`, keeps the codes that erase a line (CSI K) or move the cursor within it (CSI G). */
function visibleLine(text: string) {
  return visibleText(text, true).replaceAll(/␛(?=\[\d?[GK])/g, '\x1b')
}

/** Characters of the prefix of a rank's lines. With a template, the width may vary. */
export function prefixWidth({ format, prefix }: OutputOptions, facts: RankFacts): number {
  const { rank, worldSize, startedAt } = facts
  if (format !== 'pretty') return 0
  if (prefix !== undefined)
    return fillTemplate(prefix, { facts, stream: 'stdout', time: startedAt }).length
  return worldSize === 1 ? 0 : rankPrefix(rank, worldSize, false).length
}

export function withPrefix(prefix: string, text: string): string {
  return `${prefix}${text.replaceAll('\n', `\n${prefix}`)}\n`
}

/** Formats `[rank 3]  `. All prefixes of a job have the same width. */
export function rankPrefix(rank: number, worldSize: number, colour: boolean): string {
  const padding = ' '.repeat(String(worldSize - 1).length - String(rank).length + 1)
  return coloured(`[rank ${rank}]`, rank, colour) + padding
}

export function coloured(text: string, rank: number, colour: boolean): string {
  if (!colour) return text
  return styleText(rankColours[rank % rankColours.length]!, text, { validateStream: false })
}

/** Colours of the rank prefixes. Red is reserved for errors. */
const rankColours = [
  'cyan',
  'yellow',
  'green',
  'magenta',
  'blue',
  'cyanBright',
  'yellowBright',
  'greenBright',
  'magentaBright',
  'blueBright',
] as const

interface Output {
  readonly isTTY?: boolean
  getColorDepth?(env?: object): number
}

/** Whether to colour this stream: only on a terminal, unless NO_COLOR or FORCE_COLOR says otherwise. */
export function wantsColour(output: Output, env: NodeJS.ProcessEnv): boolean {
  const { NO_COLOR, FORCE_COLOR } = env
  if (NO_COLOR) return false
  if (FORCE_COLOR) return !['0', 'false'].includes(FORCE_COLOR)
  return output.isTTY === true && env['TERM'] !== 'dumb'
}

/** FORCE_COLOR for the ranks, whose output is a pipe: the colour depth of this terminal. */
export function colourLevel(output: Output, env: NodeJS.ProcessEnv): string {
  const depth = output.getColorDepth?.(env) ?? 4
  return depth >= 24 ? '3' : depth >= 8 ? '2' : '1'
}
