import { request } from 'node:http'
import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import type { Browser, Page } from 'playwright-core'
import { killLeftovers, Run, tsrun, until } from '../launcher/support/tsrun.ts'
import { complaintsOf, findChromium, openBrowser } from './support/browser.ts'

jest.setTimeout(120_000)
afterEach(killLeftovers)
const cwd = fileURLToPath(new URL('../fixtures/ranks/', import.meta.url))
const chromium = findChromium()

async function start(...flags: readonly string[]): Promise<{ run: Run; url: string }> {
  const args = ['--nproc', '4', '--grace', '0.3', '--dashboard', '0', ...flags, 'progress.mjs']
  const run = new Run(args, { cwd })
  await run.announced(4)
  const [, url] = /^tsrun: dashboard: (http:\S+)$/m.exec(run.stderr) ?? []
  return { run, url: url! }
}

interface Answer {
  readonly status: number | undefined
  readonly headers: NodeJS.Dict<string | string[]>
}

async function ask(
  url: string,
  headers: NodeJS.Dict<string> = {},
  method = 'GET',
): Promise<Answer> {
  return await new Promise((resolve, reject) => {
    request(url, { headers, method, agent: false }, (response) => {
      response.resume()
      resolve({ status: response.statusCode, headers: response.headers })
      response.destroy()
    })
      .on('error', reject)
      .end()
  })
}

it('answers only those who know the token, under its own name', async () => {
  const { run, url } = await start()
  const { origin, port } = new URL(url)
  expect(await ask(origin)).toMatchObject({ status: 403 })
  expect(await ask(`${origin}/events`)).toMatchObject({ status: 403 })
  expect(await ask(`${origin}//`)).toMatchObject({ status: 403 })
  expect(await ask(`${origin}/?token=${'0'.repeat(32)}`)).toMatchObject({ status: 403 })
  expect(await ask(`${origin}/?token=%C3%A9`)).toMatchObject({ status: 403 })
  expect(await ask(url, { host: `rebound.example:${port}` })).toMatchObject({ status: 421 })
  expect(await ask(url, {}, 'POST')).toMatchObject({ status: 405 })
  const { status, headers } = await ask(url)
  expect(status).toBe(303)
  expect(headers['location']).toBe('/')
  const [set] = headers['set-cookie'] as string[]
  expect(set).toMatch(/; HttpOnly; SameSite=Strict; Path=\/$/)
  const cookie = set!.split(';')[0]!
  const page = await ask(origin, { cookie })
  expect(page.status).toBe(200)
  expect(page.headers['content-security-policy']).toMatch(/^default-src 'none'; script-src 'self';/)
  for (const path of ['/../package.json', '//', '//elsewhere/', '/constructor']) {
    expect(await ask(`${origin}${path}`, { cookie })).toMatchObject({ status: 404 })
  }
  run.signal('SIGTERM')
  expect(await run.finished).toMatchObject({ code: 143 })
})

it('refuses ports that are taken, and a time to stay open without a page', async () => {
  const { run, url } = await start()
  const { port } = new URL(url)
  const second = await tsrun(['--dashboard', port, 'progress.mjs'], { cwd })
  expect(second).toMatchObject({ code: 2 })
  expect(second.stderr).toContain(`--dashboard ${port}: listen EADDRINUSE`)
  const third = await tsrun(['--dashboard-linger', '5', 'progress.mjs'], { cwd })
  expect(third.stderr).toContain('--dashboard-linger needs --dashboard PORT')
  run.signal('SIGTERM')
  await run.finished
})

it('ends with a job that fails where nobody is at a terminal', async () => {
  const { run } = await start()
  const [, second] = (await run.announced(4)).sort((a, b) => a.rank - b.rank)
  run.ask([second!])
  expect(await run.finished).toMatchObject({ code: 1 })
})

if (chromium === undefined) {
  it('skipped: no Chromium', () => {
    expect(chromium).toBeUndefined()
  })
} else
  describe('the page', () => {
    let browser: Browser
    beforeAll(async () => {
      browser = await openBrowser(chromium)
    })
    afterAll(async () => {
      await browser.close()
    })

    async function visit(url: string, width: number, colorScheme: 'dark' | 'light'): Promise<Page> {
      const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme })
      const page = await context.newPage()
      await page.goto(url)
      return page
    }

    async function untilHolds(holds: () => Promise<boolean>): Promise<void> {
      const deadline = performance.now() + 20_000
      while (!(await holds())) if (performance.now() > deadline) throw new Error('still not shown')
    }

    /** The step that the table shows for rank 0. */
    async function stepOn(page: Page): Promise<number> {
      const cells = await page.locator('tbody tr').first().locator('td').allTextContents()
      return Number(cells[3])
    }

    it('shows ranks, output and the report of a failure as they come', async () => {
      const { run, url } = await start('--dashboard-linger', '60')
      const context = await browser.newContext({ viewport: { width: 1280, height: 900 } })
      const page = await context.newPage()
      const complaints = complaintsOf(page)
      await page.goto(url)
      expect(page.url()).not.toContain('token')
      await page.locator('tbody tr').nth(3).waitFor()
      await page.getByRole('heading', { name: 'progress.mjs' }).waitFor()
      const before = await stepOn(page)
      await untilHolds(async () => (await stepOn(page)) > before + 20)
      await page.locator('td meter').nth(3).waitFor()
      // What ranks print is text.
      await page.getByText('<img src=x onerror="alert(1)"> of rank 3').waitFor()
      await page.getByLabel('Contains').fill('STEP 50')
      const output = page.locator('.output > div')
      await untilHolds(async () => {
        const lines = await output.allTextContents()
        return lines.length > 0 && lines.every((line) => line.includes('step 50'))
      })
      await page.getByRole('combobox', { name: 'Rank' }).selectOption('2')
      await untilHolds(async () => {
        const lines = await output.allTextContents()
        return lines.length > 0 && lines.every((line) => line.startsWith('2 '))
      })
      await page.getByRole('img', { name: /^What 4 ranks did: computing \d+ %/ }).waitFor()
      await page.getByRole('img', { name: /^Loss over time, now 0\.\d+$/ }).waitFor()
      const ranks = await run.announced(4)
      run.ask(ranks, (rank) => rank === 1)
      const report = page.getByRole('region', { name: 'Report of the failure' })
      await report.getByText('the disk of rank 1 is full').first().waitFor()
      await page.getByRole('status').getByText('failed').waitFor()
      await until(
        () => run.stderr.includes('the dashboard stays open until Ctrl-C'),
        'it stays open',
      )
      // A page that is opened now shows the same.
      await page.reload()
      await report.waitFor()
      await page.getByText('ended').nth(3).waitFor()
      expect(complaints).toEqual([])
      run.signal('SIGINT')
      expect(await run.finished).toMatchObject({ code: 1 })
      await context.close()
    })

    it.each([
      { width: 390, scheme: 'dark' as const, background: 'rgb(18, 21, 27)' },
      { width: 1280, scheme: 'light' as const, background: 'rgb(246, 247, 249)' },
    ])(
      'fits $width pixels in $scheme colours, by keyboard',
      async ({ width, scheme, background }) => {
        const { run, url } = await start()
        const page = await visit(url, width, scheme)
        const complaints = complaintsOf(page)
        await page.locator('tbody tr').nth(3).waitFor()
        const widths = await page.evaluate(
          '((html) => [html.scrollWidth, html.clientWidth, getComputedStyle(document.body).backgroundColor])' +
            '(document.documentElement)',
        )
        expect(widths).toEqual([width, width, background])
        const names: unknown[] = []
        for (let press = 0; press < 4; press++) {
          await page.keyboard.press('Tab')
          names.push(await page.evaluate('document.activeElement.tagName'))
        }
        expect(names).toEqual(['DIV', 'INPUT', 'SELECT', 'PRE'])
        // Canvases of charts are parts of pictures with names.
        const named = ['[aria-label]', '[aria-labelledby]', 'label *', '[role=img] *']
        const parts = ['input', 'select', 'canvas', 'meter', '[role=img]', '[tabindex]']
        const without = named.map((one) => `:not(${one})`).join('')
        const unnamed = await page.locator(parts.map((part) => `${part}${without}`).join()).count()
        expect(unnamed).toBe(0)
        expect(complaints).toEqual([])
        await page.context().close()
        run.signal('SIGTERM')
        await run.finished
      },
    )
  })
