import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pictures } from '../../scripts/pictures.mjs'
import { pages } from '../docs/pages.ts'

const names = Object.keys(pictures)

function read(name: string): string {
  return readFileSync(join('docs', 'images', name), 'utf8')
}

interface Box {
  readonly content: string
  readonly left: number
  readonly right: number
  readonly top: number
  readonly bottom: number
}

/** Average width of a character of DejaVu Sans, the widest of the fonts, in font heights. */
const WIDTH = 0.58

function textsOf(svg: string): Box[] {
  const texts = svg.matchAll(
    /<text(?: class="(?<names>[^"]*)")? x="(?<x>[^"]*)" y="(?<y>[^"]*)">(?<inner>.*?)<\/text>/g,
  )
  return Array.from(texts, ({ groups = {} }) => {
    const { names = '', x, y, inner = '' } = groups
    const content = inner.replace(/<[^>]*>/g, ' ').trim()
    const size = names.includes('title') ? 15 : names.includes('value') ? 12 : 13
    const width = content.length * size * WIDTH
    const before = names.includes('end') ? 1 : /middle|value/.test(names) ? 0.5 : 0
    const left = Number(x) - before * width
    const bottom = Number(y) + 0.2 * size
    return { content, left, right: left + width, top: bottom - size, bottom }
  })
}

function overlap(a: Box, b: Box): boolean {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom
}

describe.each(names)('docs/images/%s', (name) => {
  it('is what the code draws', async () => {
    expect(await pictures[name]!()).toBe(read(name))
  })

  it('has a title, a description, and texts that are inside it and apart', () => {
    const svg = read(name)
    const [, title, description] = /<title id="title">(.+)<\/title>\n<desc id="desc">(.+)</.exec(
      svg,
    )!
    expect(title).not.toBe(description)
    const [width, height] = /width="(\d+)" height="(\d+)"/.exec(svg)!.slice(1).map(Number)
    const texts = textsOf(svg)
    expect(texts.length).toBeGreaterThan(4)
    const outside = texts.filter(
      ({ left, right, top, bottom }) => left < 0 || top < 0 || right > width! || bottom > height!,
    )
    const pairs = texts.flatMap((a, i) =>
      texts.slice(i + 1).flatMap((b) => (overlap(a, b) ? [[a.content, b.content]] : [])),
    )
    expect({ outside, pairs }).toEqual({ outside: [], pairs: [] })
  })

  it('is shown on a page, with an alternative text', () => {
    const shown = new RegExp(`!\\[[^\\]]{20,}\\]\\([^)]*images/${name}\\)`)
    expect(pages.some((page) => shown.test(readFileSync(page, 'utf8')))).toBe(true)
  })
})
