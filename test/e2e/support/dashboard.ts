import { fileURLToPath } from 'node:url'
import type { Page } from 'playwright-core'
import { Run } from '../../launcher/support/tsrun.ts'
import type { Look, NewPage } from './browser.ts'

export const cwd = fileURLToPath(new URL('../../fixtures/ranks/', import.meta.url))

export async function start(...flags: readonly string[]): Promise<{ run: Run; url: string }> {
  const args = ['--nproc', '4', '--grace', '0.3', '--dashboard', '0', ...flags, 'progress.mjs']
  const run = new Run(args, { cwd })
  await run.announced(4)
  const [, url] = /^tsrun: dashboard: (http:\S+)$/m.exec(run.stderr) ?? []
  return { run, url: url! }
}

/** What the Tab key reaches, up to the output: tables, filters, and the output. */
export const everyPart = ['DIV', 'SELECT', 'DIV', 'DIV', 'INPUT', 'SELECT', 'PRE']

export async function tabsOf(page: Page): Promise<string[]> {
  const names: string[] = []
  while (names.at(-1) !== 'PRE' && names.length < 12) {
    await page.keyboard.press('Tab')
    names.push(await page.evaluate('document.activeElement.tagName'))
  }
  return names
}

/** Widths of the window with its colours. */
export const widths = [
  { width: 390, scheme: 'dark' as const, background: 'rgb(18, 21, 27)' },
  { width: 1280, scheme: 'light' as const, background: 'rgb(246, 247, 249)' },
]

export function describeFitting(
  newPage: (look?: Look) => Promise<NewPage>,
  cases: typeof widths,
): void {
  it.each(cases)(
    'fits $width pixels in $scheme colours, by keyboard',
    async ({ width, scheme, background }) => {
      const { run, url } = await start()
      const { page, complaints } = await newPage({ width, colorScheme: scheme })
      await page.goto(url)
      await page.locator('tbody tr').nth(3).waitFor()
      await page.getByRole('region', { name: 'Table of links' }).waitFor()
      const widths = await page.evaluate(
        '((html) => [html.scrollWidth, html.clientWidth, getComputedStyle(document.body).backgroundColor])' +
          '(document.documentElement)',
      )
      expect(widths).toEqual([width, width, background])
      await page.getByRole('region', { name: 'Table of collectives' }).waitFor()
      expect(await tabsOf(page)).toEqual(everyPart)
      // Canvases of charts are parts of pictures with names.
      const named = ['[aria-label]', '[aria-labelledby]', 'label *', '[role=img] *']
      const parts = ['input', 'select', 'canvas', 'meter', '[role=img]', '[tabindex]']
      const without = named.map((one) => `:not(${one})`).join('')
      const unnamed = await page.locator(parts.map((part) => `${part}${without}`).join()).count()
      expect(unnamed).toBe(0)
      expect(complaints).toEqual([])
      run.signal('SIGTERM')
      await run.finished
    },
  )
}
