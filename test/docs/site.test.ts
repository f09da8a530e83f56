import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'
import { entries } from '../../docs/.vitepress/sidebar.mjs'
import {
  describeProgram,
  listAssets,
  listPages,
  liveSections,
  renderPage,
  rewriteLinks,
  sitePathOf,
} from '../../scripts/site/pages.mjs'
import { pages } from './pages.ts'
import { root } from './run.ts'

describe('the sidebar of the site', () => {
  const paths = entries.map(([path]) => path)

  it('lists each page of the documentation exactly once', () => {
    const documented = paths.filter((path) => path.startsWith('docs/'))
    expect(documented.sort()).toEqual(pages.filter((page) => page.startsWith('docs/')).sort())
  })

  it('lists only files that exist, and none twice', () => {
    expect(paths.filter((path) => !existsSync(join(root, path)))).toEqual([])
    expect(new Set(paths).size).toBe(paths.length)
  })
})

describe('the pages of the site', () => {
  const onSite = new Set([...listPages(), ...listAssets()].map((path) => sitePathOf(path)))
  onSite.add('public/live.html')

  it('have different paths', () => {
    expect(onSite.size - 1).toBe(listPages().length + listAssets().length)
    expect(listPages()).toEqual(expect.arrayContaining(pages))
  })

  it('are without the sources of the live page', () => {
    expect(listPages().filter((path) => path.startsWith('examples/live/'))).toEqual([])
    expect(listPages()).toContain('examples/live-page.ts')
  })

  it.each(Object.entries(liveSections))(
    '%s leads to the section %s of the live page',
    (path, id) => {
      const to = posix.relative(dirname(sitePathOf(path)), 'live.html')
      expect(renderPage(path)).toMatch(new RegExp(`^# .+\n\n<a href="(\\./)?${to}#${id}"`, 'm'))
      const sections = readdirSync(join(root, 'examples/live'))
        .filter((name) => name.endsWith('-section.tsx'))
        .map((name) => readFileSync(join(root, 'examples/live', name), 'utf8'))
      expect(sections.join('')).toContain(`<Section id="${id}"`)
    },
  )

  it.each(listPages())('%s links to pages and images of the site', (path) => {
    const targets = Array.from(
      renderPage(path)
        .replace(/^```[^]*?^```$|`[^`\n]*`/gm, '')
        .matchAll(/(?:\]\(<?|(?:src|srcset|href)=")([^\s)"#>]+)/g),
      ([, target]) => target!,
    ).filter((target) => !/^[a-z]+:/.test(target))
    const lost = targets.filter((target) => {
      const file = posix.join(dirname(sitePathOf(path)), target)
      return !onSite.has(file) && !onSite.has(`public/${file}`)
    })
    expect(lost).toEqual([])
  })
})

describe('rewriteLinks', () => {
  it('leads to pages at their places on the site, and keeps anchors', () => {
    const page =
      '[a](../examples/README.md#beside), [b](pipeline.md), [`c`](../examples/04-naive.ts)'
    expect(rewriteLinks(page, 'docs/torch.md')).toBe(
      '[a](./examples/index.md#beside), [b](./pipeline.md), [`c`](./examples/04-naive.md)',
    )
  })

  it('leads to images, and to web pages past the router', () => {
    const page =
      '![t](docs/images/timeline.svg) <img src="docs/images/view.png"> [e](docs/schedules.html)'
    expect(rewriteLinks(page, 'README.md')).toBe(
      '![t](./images/timeline.svg) <img src="./images/view.png"> ' +
        '<a href="./schedules.html" target="_self">e</a>',
    )
  })

  it('leads to the repository where the site has no page', () => {
    expect(rewriteLinks('[s](../packages/core/src/time.ts)', 'docs/gpu.md')).toMatch(
      /^\[s\]\(https:\/\/\S+\/blob\/main\/packages\/core\/src\/time\.ts\)$/,
    )
  })

  it('leads to the repository whose workflow runs', () => {
    const { env } = process
    process.env = {
      ...env,
      GITHUB_SERVER_URL: 'https://host',
      GITHUB_REPOSITORY: 'them/tsrun',
    }
    try {
      expect(rewriteLinks('[s](../packages/core/src/time.ts)', 'docs/gpu.md')).toBe(
        '[s](https://host/them/tsrun/blob/main/packages/core/src/time.ts)',
      )
    } finally {
      process.env = env
    }
  })

  it('leaves code, anchors and addresses as they are', () => {
    const page = '`[a](b.md)` [c](#d) [e](https://example.org/f)\n```ts\nlist[0](g.md)\n```'
    expect(rewriteLinks(page, 'README.md')).toBe(page)
  })
})

it('a program becomes a page with its comment, its code and links to what it imports', () => {
  const source = [
    '// Step 4: the naive pipeline.',
    '//',
    '//   npx tsrun examples/04-naive.ts',
    '//',
    '// Exercises: examples/exercises.md',
    '',
    `import { runLesson } from './lib/lesson.ts'`,
  ].join('\n')
  expect(describeProgram('examples/04-naive.ts', source, 'Naive').split('\n\n')).toEqual([
    '# Naive',
    'Step 4: the naive pipeline.',
    '```text\nnpx tsrun examples/04-naive.ts\n```',
    'Exercises: [examples/exercises.md](exercises.md)',
    '## The program',
    `\`\`\`ts\nimport { runLesson } from './lib/lesson.ts'\n\`\`\``,
    'It imports [`examples/lib/lesson.ts`](./lib/lesson.ts).',
    '',
  ])
})
