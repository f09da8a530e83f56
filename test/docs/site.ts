import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import type { OpenPage } from '../e2e/support/browser.ts'
import { root } from './run.ts'

export const site = join(root, 'docs/.vitepress/dist')
/** The Markdown that the site was built from. */
export const gathered = join(root, 'docs/.vitepress/pages')
export const isBuilt = existsSync(site)
export const address = 'http://127.0.0.1'
export const pages = isBuilt
  ? readdirSync(site, { recursive: true, encoding: 'utf8' }).filter((name) =>
      name.endsWith('.html'),
    )
  : []

/** Lets a page load the built files as if a server had them, also without the scripts of VitePress. */
export async function serve(page: Page, hasScripts: boolean): Promise<void> {
  await page.route(`${address}/**`, (route) => {
    const { pathname } = new URL(route.request().url())
    if (!hasScripts && pathname.endsWith('.js')) return route.abort()
    const path = join(site, decodeURIComponent(pathname).replace(/\/$/, '/index.html'))
    return route.fulfill(existsSync(path) ? { path } : { status: 404 })
  })
}

/** Those of some pages that are wider than a window of 390 pixels. */
export async function widerThan390(newPage: OpenPage, names: readonly string[]): Promise<string[]> {
  const { page } = await newPage({ width: 390 })
  await serve(page, false)
  const wide = []
  for (const name of names) {
    await page.goto(`${address}/${name}`)
    const width = await page.evaluate('document.documentElement.scrollWidth')
    if (Number(width) > 390) wide.push(`${name}: ${String(width)}`)
  }
  return wide
}
