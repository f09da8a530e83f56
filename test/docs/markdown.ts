import { anchorOf } from '../../scripts/site/pages.mjs'

/** A fenced block of a page. */
export interface Block {
  /** For messages: page and line. */
  readonly where: string
  /** First word after the fence. */
  readonly language: string
  readonly text: string
  /** From `<!-- not executed: reason -->` before the block. */
  readonly notExecuted: string | undefined
  /** Ranks to run a program with, from `<!-- ranks: 4 -->` before the block. */
  readonly ranks: number
}

/** Finds the fenced blocks of a Markdown page, each with the comments right above it. */
export function blocksOf(page: string, markdown: string): Block[] {
  const pattern = /((?:^<!--.*-->\n\s*)*)^```(\w*)[^\n]*\n([\s\S]*?)^```$/gm
  return Array.from(markdown.matchAll(pattern), (match) => {
    const [, comments = '', language = '', text = ''] = match
    const line = markdown.slice(0, match.index).split('\n').length
    return {
      where: `${page}:${line}`,
      language,
      text,
      notExecuted: /not executed: (.+?) -->/.exec(comments)?.[1],
      ranks: Number(/ranks: (\d+) -->/.exec(comments)?.[1] ?? 2),
    }
  })
}

/** The anchors that GitHub gives the headings of a page. */
export function headingsOf(markdown: string): string[] {
  const prose = markdown.replace(/^```[\s\S]*?^```$/gm, '')
  return Array.from(prose.matchAll(/^#{1,6} +(.+)$/gm), ([, heading]) => anchorOf(heading!))
}
