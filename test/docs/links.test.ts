import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { root } from './run.ts'

const docs = readdirSync(join(root, 'docs'), { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.md'))
  .map((name) => join('docs', name))
const readmes = readdirSync(join(root, 'packages'))
  .map((name) => join('packages', name, 'README.md'))
  .filter((path) => existsSync(join(root, path)))
const pages = ['README.md', 'CONTRIBUTING.md', 'SECURITY.md', ...docs, ...readmes]

/** Targets of links and images, but not in code, where brackets mean something else. */
function targetsOf(markdown: string): string[] {
  const prose = markdown.replace(/^```[\s\S]*?^```$/gm, '').replace(/`[^`\n]*`/g, '')
  const inline = prose.matchAll(/\]\(\s*<?([^\s)>]+)>?[^)]*\)/g)
  const references = prose.matchAll(/^ *\[[^\]]+\]: *<?([^\s>]+)/gm)
  const html = prose.matchAll(/\b(?:src|href)="([^"]+)"/g)
  return [...inline, ...references, ...html].map(([, target]) => target!)
}

function isRelative(target: string): boolean {
  return !/^([a-z][a-z+.-]*:|#|\/\/)/i.test(target)
}

it('sees links, images and references, and no code', () => {
  const page = [
    '[a](a.md#part), ![b](<b.svg> "title"), [`c`](c.ts), `[no](no.md)`, <img src="d.png">',
    '```ts',
    'list[0](no.md)',
    '```',
    '[e]: e.md',
    '[far](https://example.org), [here](#here)',
  ].join('\n')
  const relative = targetsOf(page).filter(isRelative)
  expect(relative.sort()).toEqual(['a.md#part', 'b.svg', 'c.ts', 'd.png', 'e.md'])
})

it.each(pages)('%s links to files that exist', (page) => {
  const targets = targetsOf(readFileSync(join(root, page), 'utf8')).filter(isRelative)
  const missing = targets.filter((target) => {
    const path = decodeURIComponent(target.replace(/[#?].*$/, ''))
    return !existsSync(join(root, path.startsWith('/') ? '.' : dirname(page), path))
  })
  expect(missing).toEqual([])
})
