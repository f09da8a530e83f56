import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import ts from 'typescript'
import { entries } from '../../docs/.vitepress/sidebar.mjs'
import { listPages, renderPage, sitePathOf } from '../../scripts/site/pages.mjs'
import { describeInChromium } from '../e2e/support/browser.ts'
import { needing } from '../needs.ts'
import { root } from './run.ts'
import { address, gathered, isBuilt, pages, serve, site, widerThan390 } from './site.ts'

/** The pages that typedoc wrote. */
const reference = isBuilt
  ? readdirSync(join(gathered, 'reference'), { recursive: true, encoding: 'utf8' })
      .filter((name) => name.endsWith('.md'))
      .map((name) => readFileSync(join(gathered, 'reference', name), 'utf8'))
      .join('\n')
  : ''
const entryPoints = isBuilt ? exportsOfPackages() : []

/** Each entry point by the name to import it by, with the names that it exports. */
function exportsOfPackages(): [name: string, exported: string[]][] {
  const sources = readdirSync(join(root, 'packages')).flatMap((folder) => {
    const manifest = readFileSync(join(root, 'packages', folder, 'package.json'), 'utf8')
    const { name, exports = {} } = JSON.parse(manifest) as {
      readonly name: string
      readonly exports?: Readonly<Record<string, Readonly<Record<string, string>>>>
    }
    return Object.entries(exports).flatMap(([entry, { '@tsrun/source': source }]) =>
      source === undefined
        ? []
        : [{ name: join(name, entry), source: join(root, 'packages', folder, source) }],
    )
  })
  const program = ts.createProgram(
    sources.map(({ source }) => source),
    {
      module: ts.ModuleKind.NodeNext,
      target: ts.ScriptTarget.ES2023,
      allowImportingTsExtensions: true,
      noEmit: true,
      skipLibCheck: true,
      customConditions: ['@tsrun/source'],
    },
  )
  const checker = program.getTypeChecker()
  return sources.map(({ name, source }) => {
    const module = checker.getSymbolAtLocation(program.getSourceFile(source)!)!
    return [name, checker.getExportsOfModule(module).map((symbol) => symbol.name)]
  })
}

function decoded(attribute: string): string {
  return attribute.replaceAll('&amp;', '&')
}

/** The file of the site that a link of a page leads to. */
function fileOf(path: string, page: string): string {
  const from = path.startsWith('/') ? '' : dirname(page)
  const file = path === '' ? page : join(from, decodeURIComponent(path.replace(/\?.*/, '')))
  if (file === '/' || file === '.') return 'index.html'
  const relative = file.replace(/^\//, '')
  if (relative.endsWith('/')) return `${relative}index.html`
  return existsSync(join(site, `${relative}.html`)) ? `${relative}.html` : relative
}

needing(isBuilt, 'site: npm run site builds it').describe('the site', () => {
  it('was built by npm run site after the last change of a page', () => {
    const changed = listPages().filter((path) => {
      const page = join(gathered, sitePathOf(path))
      const [, title] = entries.find(([entry]) => entry === path) ?? []
      return !existsSync(page) || readFileSync(page, 'utf8') !== renderPage(path, title)
    })
    expect(changed).toEqual([])
  })

  it('leads from each link and image to a file, and from each anchor to its place', () => {
    const html = new Map(
      pages.map((name) => {
        const text = readFileSync(join(site, name), 'utf8')
        return [name, text.replace(/<script[^]*?<\/script>/g, '')]
      }),
    )
    const placesIn = (name: string): string[] =>
      Array.from(html.get(name)!.matchAll(/ (?:id|name)="([^"]+)"/g), ([, id]) => decoded(id!))
    const places = new Map(pages.map((name) => [name, new Set(placesIn(name))]))
    // The scripts of the live page make its sections.
    const isMade = (file: string): boolean => file === 'live.html' || file === 'schedules.html'
    const lost: string[] = []
    for (const [name, text] of html) {
      for (const [, raw] of text.matchAll(/ (?:href|src)="([^"]+)"/g)) {
        const target = decoded(raw!)
        if (/^([a-z]+:|\/\/)/.test(target)) continue
        const [path, anchor = ''] = target.split('#') as [string, string?]
        const file = fileOf(path, name)
        const isLost = !existsSync(join(site, file))
        const isWithout =
          anchor !== '' &&
          !isMade(file) &&
          places.get(file)?.has(decodeURIComponent(anchor)) !== true
        if (isLost || isWithout) lost.push(`${name}: ${target}`)
      }
    }
    expect(pages.length).toBeGreaterThan(100)
    expect(lost).toEqual([])
  })

  it('has no cell or paragraph that is "undefined"', () => {
    const lost = pages.filter((name) => {
      return /<(?:li|p|td)[^>]*>undefined<[a-z]/.test(readFileSync(join(site, name), 'utf8'))
    })
    expect(lost).toEqual([])
  })

  it.each(entryPoints)('documents each name that %s exports', (name, exported) => {
    const headings = new Set(
      Array.from(reference.matchAll(/^#{2,4} (.+)$/gm), ([, heading]) =>
        heading!
          .replaceAll('\\', '')
          .replace(/[(<:?].*/, '')
          .trim(),
      ),
    )
    expect(exported.length).toBeGreaterThan(0)
    // Tensor is a class of TensorFlow.js.
    const own = exported.filter((each) => each !== 'Tensor')
    expect(own.filter((each) => !headings.has(each))).toEqual([])
  })

  describeInChromium('in Chromium', (newPage) => {
    // site.nightly.test.ts has all pages.
    it('fits a window of 390 pixels on every page of the guide', async () => {
      expect(
        await widerThan390(
          newPage,
          pages.filter((name) => !name.includes('/')),
        ),
      ).toEqual([])
    })

    it.each(['index', 'launcher', 'errors', 'examples/04-naive', 'reference/index'])(
      'fits 390 pixels with scripts, in the dark, with an open menu and search: %s',
      async (name) => {
        const { page, complaints } = await newPage({ width: 390, colorScheme: 'dark' })
        await serve(page, true)
        await page.goto(`${address}/${name}.html`)
        const widthOf = (): Promise<number> => page.evaluate('document.documentElement.scrollWidth')
        await page.getByRole('button', { name: 'Search' }).click()
        await page.getByRole('searchbox').fill('reduce-scatter')
        await page.getByRole('option').first().waitFor()
        expect(await widthOf()).toBe(390)
        await page.keyboard.press('Escape')
        await page.getByRole('button', { name: 'mobile navigation' }).click()
        expect(await widthOf()).toBe(390)
        expect(complaints).toEqual([])
      },
    )

    it.each(['light', 'dark'] as const)('finds pages and public names, %s', async (colorScheme) => {
      const { page, complaints } = await newPage({ colorScheme })
      await serve(page, true)
      await page.goto(`${address}/index.html`)
      const classes = await page.locator('html').getAttribute('class')
      expect((classes ?? '').includes('dark')).toBe(colorScheme === 'dark')
      for (const [words, title] of [
        ['reduce-scatter', 'Algorithms'],
        ['initProcessGroup', 'initProcessGroup()'],
      ] as const) {
        await page.getByRole('button', { name: 'Search' }).click()
        await page.getByRole('searchbox').fill(words)
        await page.getByRole('option', { name: title }).first().waitFor()
        await page.keyboard.press('Escape')
      }
      expect(complaints).toEqual([])
    })
  })
})
