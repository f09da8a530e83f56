import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import { entries } from '../../docs/.vitepress/sidebar.mjs'
import { listPages, renderPage, sitePathOf } from '../../scripts/site/pages.mjs'
import { describeInChromium } from '../e2e/support/browser.ts'
import { needing } from '../needs.ts'
import { root } from './run.ts'

const site = join(root, 'docs/.vitepress/dist')
/** The Markdown that the site was built from. */
const gathered = join(root, 'docs/.vitepress/pages')
const isBuilt = existsSync(site)
const address = 'http://127.0.0.1'
const pages = isBuilt
  ? readdirSync(site, { recursive: true, encoding: 'utf8' }).filter((name) =>
      name.endsWith('.html'),
    )
  : []

/** Lets a page load the built files as if a server had them, also without the scripts of VitePress. */
async function serve(page: Page, hasScripts: boolean): Promise<void> {
  await page.route(`${address}/**`, (route) => {
    const { pathname } = new URL(route.request().url())
    if (!hasScripts && pathname.endsWith('.js')) return route.abort()
    const path = join(site, decodeURIComponent(pathname).replace(/\/$/, '/index.html'))
    return route.fulfill(existsSync(path) ? { path } : { status: 404 })
  })
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

  describeInChromium('in Chromium', (newPage) => {
    it('fits a window of 390 pixels on every page', async () => {
      const { page } = await newPage({ width: 390 })
      await serve(page, false)
      const wide = []
      for (const name of pages) {
        await page.goto(`${address}/${name}`)
        const width = await page.evaluate('document.documentElement.scrollWidth')
        if (Number(width) > 390) wide.push(`${name}: ${String(width)}`)
      }
      expect(pages.length).toBeGreaterThan(100)
      expect(wide).toEqual([])
    }, 600_000)

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
