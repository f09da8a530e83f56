import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { headingsOf } from './markdown.ts'
import { packageReadmes, pages } from './pages.ts'
import { root } from './run.ts'

/** Targets of links and images, but not in code, where brackets mean something else. */
function targetsOf(markdown: string): string[] {
  const prose = withoutBlocks(markdown).replace(/`[^`\n]*`/g, '')
  const inline = prose.matchAll(/\]\(\s*<?([^\s)>]+)>?[^)]*\)/g)
  const references = prose.matchAll(/^ *\[[^\]]+\]: *<?([^\s>]+)/gm)
  const html = prose.matchAll(/\b(?:src|href)="([^"]+)"/g)
  return [...inline, ...references, ...html].map(([, target]) => target!)
}

function withoutBlocks(markdown: string): string {
  return markdown.replace(/^```[\s\S]*?^```$/gm, '')
}

function isRelative(target: string): boolean {
  return !/^([a-z][a-z+.-]*:|\/\/)/i.test(target)
}

/** The path from the root of the repository that a link on `page` leads to. */
function pathOf(page: string, target: string): string {
  const path = decodeURIComponent(target.replace(/[#?].*$/, ''))
  return path === '' ? page : join(path.startsWith('/') ? '.' : dirname(page), path)
}

function read(page: string): string {
  return readFileSync(join(root, page), 'utf8')
}

it('finds links, images and references, and ignores code', () => {
  const page = [
    '[a](a.md#part), ![b](<b.svg> "title"), [`c`](c.ts), `[no](no.md)`, <img src="d.png">',
    '```ts',
    'list[0](no.md)',
    '```',
    '[e]: e.md',
    '[far](https://example.org), [here](#here)',
  ].join('\n')
  const relative = targetsOf(page).filter(isRelative)
  expect(relative.sort()).toEqual(['#here', 'a.md#part', 'b.svg', 'c.ts', 'd.png', 'e.md'])
})

it.each(pages)('%s links to files that exist', (page) => {
  const targets = targetsOf(read(page)).filter(isRelative)
  const missing = targets.filter((target) => !existsSync(join(root, pathOf(page, target))))
  expect(missing).toEqual([])
})

it.each(pages)('%s links to headings that exist', (page) => {
  const targets = targetsOf(read(page)).filter((target) => isRelative(target))
  const missing = targets.filter((target) => {
    const heading = /#(.*)$/.exec(target)?.[1]
    const path = pathOf(page, target)
    return heading !== undefined && !headingsOf(read(path)).includes(heading)
  })
  expect(missing).toEqual([])
})

describe('paths of the repository in code spans', () => {
  const isPath = /^(?:\.ci|\.github|docs|examples|packages|scripts|test)\/[\w./-]+$/
  const isPathOfPackage = /^[\w./-]+(?:\/|\.(?:ts|mjs|cc))$/

  function spansOf(page: string): string[] {
    return Array.from(withoutBlocks(read(page)).matchAll(/`([^`\n]+)`/g), ([, span]) => span!)
  }

  it.each(pages)('exist: %s', (page) => {
    const missing = spansOf(page).filter(
      (span) => isPath.test(span) && !existsSync(join(root, span)),
    )
    expect(missing).toEqual([])
  })

  // A README may name a file without the folders above it, which the lines around it give.
  it.each(packageReadmes)('exist in the package: %s', (page) => {
    const folder = join(root, dirname(page))
    const sources = join(folder, 'src')
    const entries = existsSync(sources)
      ? readdirSync(sources, { recursive: true, encoding: 'utf8' })
      : []
    const missing = spansOf(page).filter((span) => {
      const path = span.replace(/\/$/, '')
      return (
        isPathOfPackage.test(span) &&
        !existsSync(join(folder, path)) &&
        !entries.some((entry) => entry === path || entry.endsWith(`/${path}`))
      )
    })
    expect(missing).toEqual([])
  })
})
