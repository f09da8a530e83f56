import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { request } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { Page } from 'playwright-core'
import { killLeftovers, Run, tsrun, until } from '../launcher/support/tsrun.ts'
import { describeInChromium, mostWait } from './support/browser.ts'
import { cwd, describeFitting, everyPart, start, tabsOf, widths } from './support/dashboard.ts'

afterAll(killLeftovers)
const training = fileURLToPath(new URL('../fixtures/training/', import.meta.url))

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

it('the dashboard answers only requests with the token and the right host name', async () => {
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

it('--dashboard refuses a port in use, and --dashboard-linger needs --dashboard', async () => {
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

it('without a terminal, the dashboard ends with a failed job and removes its spans', async () => {
  const scratch = mkdtempSync(join(tmpdir(), 'tsrun-test-'))
  const args = ['--nproc', '2', '--grace', '0.3', '--dashboard', '0', 'progress.mjs']
  const run = new Run(args, { cwd, env: { TMPDIR: scratch } })
  const ranks = await run.announced(2)
  const shown = (): string[] => readdirSync(scratch).filter((name) => name.includes('dashboard'))
  await until(() => shown().length === 1, 'the folder of the spans')
  run.ask(ranks, (rank) => rank === 1)
  expect(await run.finished).toMatchObject({ code: 1 })
  expect(shown()).toEqual([])
  rmSync(scratch, { recursive: true })
})

describeInChromium('the page', (newPage) => {
  async function untilHolds(holds: () => Promise<boolean>): Promise<void> {
    const deadline = performance.now() + mostWait
    while (!(await holds())) {
      if (performance.now() > deadline) throw new Error('still not shown')
      await pause(50)
    }
  }

  /** The step that the table shows for rank 0. */
  async function stepOn(page: Page): Promise<number> {
    const cells = await page.locator('tbody tr').first().locator('td').allTextContents()
    return Number(cells[3])
  }

  it('shows ranks, output and failure reports live', async () => {
    const { run, url } = await start('--dashboard-linger', '60')
    const { page, complaints } = await newPage()
    await page.goto(url)
    expect(page.url()).not.toContain('token')
    await page.locator('tbody tr').nth(3).waitFor()
    await page.getByRole('heading', { name: 'progress.mjs' }).waitFor()
    await page.locator('header code').getByText('progress.mjs').waitFor()
    await page
      .locator('header p')
      .getByText(/ · 4 ranks · \d+ s$/)
      .waitFor()
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
    const filters = page.getByRole('region', { name: 'Output', exact: true })
    await filters.getByRole('combobox', { name: 'Rank' }).selectOption('2')
    await untilHolds(async () => {
      const lines = await output.allTextContents()
      return lines.length > 0 && lines.every((line) => line.startsWith('2 '))
    })
    await page.getByRole('img', { name: /^What 4 ranks did: computing \d+ %/ }).waitFor()
    await page.getByRole('img', { name: /^Step \d+ of 4 ranks: / }).waitFor()
    await page.getByRole('img', { name: /^Loss over time, now 0\.\d+$/ }).waitFor()
    const ranks = await run.announced(4)
    run.ask(ranks, (rank) => rank === 1)
    const report = page.getByRole('region', { name: 'Report of the failure' })
    await report.getByText('the disk of rank 1 is full').first().waitFor()
    await page.getByRole('status').getByText('failed').waitFor()
    await until(() => run.stderr.includes('the dashboard stays open until Ctrl-C'), 'it stays open')
    // A page that is opened now shows the same.
    await page.reload()
    await report.waitFor()
    await page.getByText('ended', { exact: true }).nth(2).waitFor()
    await page.getByRole('cell', { name: 'died', exact: true }).waitFor()
    expect(complaints).toEqual([])
    run.signal('SIGINT')
    expect(await run.finished).toMatchObject({ code: 1 })
  })

  describe('of a traced job', () => {
    let folder: string
    let run: Run
    let url: string
    beforeAll(async () => {
      folder = mkdtempSync(join(tmpdir(), 'tsrun-dashboard-'))
      const flags = ['--nproc', '4', '--grace', '0.3', '--dashboard', '0', '--trace', folder]
      run = new Run([...flags, 'endless-steps.mjs'], { cwd: training })
      await until(() => run.stderr.includes('dashboard: '), 'the dashboard')
      url = /^tsrun: dashboard: (http:\S+)$/m.exec(run.stderr)![1]!
    })
    afterAll(async () => {
      run.signal('SIGTERM')
      await run.finished
      rmSync(folder, { recursive: true })
    })

    it('shows steps with the ideal schedule, links and buckets live', async () => {
      const { page, complaints } = await newPage()
      await page.goto(url)
      const picture = page.getByRole('img', {
        name: /^Step \d+ of 4 ranks: [\d.]+ m?s, the ideal/,
      })
      await picture.waitFor()
      const numberOf = async (): Promise<number> =>
        Number(/\d+/.exec((await picture.getAttribute('aria-label')) ?? '')?.[0])
      const before = await numberOf()
      await untilHolds(async () => (await numberOf()) > before + 5)
      const section = page.getByRole('region', { name: 'Last step', exact: true })
      const text = (await section.textContent()) ?? ''
      const shares =
        /Compute (\d+) %\. Lost: bubble (\d+) %, imbalance (\d+) %, exposed communication (\d+) %, input (\d+) %, overhead (\d+) %/
      const numbers = (shares.exec(text) ?? []).slice(1).map(Number)
      // They are shares of the whole, each of them rounded.
      const sum = numbers.reduce((total, one) => total + one, 0)
      expect(Math.abs(sum - 100)).toBeLessThanOrEqual(3)
      expect(numbers[0]).toBeGreaterThan(0)
      for (const word of ['forward', 'backward', 'update', 'waiting', 'overhead']) {
        expect(text).toContain(word)
      }
      // The buckets of the two replicas: their values are ready before they are sent.
      const collectives = page.getByRole('region', { name: 'Table of collectives' })
      await page.getByRole('combobox', { name: 'Rank' }).first().selectOption('3')
      const bucket = collectives.locator('tr', { hasText: 'bucket' }).first()
      const cells = await bucket.locator('td').allTextContents()
      expect(cells).toHaveLength(5)
      expect(cells[0]).toMatch(/^[\d.]+ KiB$/)
      const [ready, moving, sent] = cells.slice(1, 4).map((cell) => parseFloat(cell))
      expect(moving).toBeGreaterThanOrEqual(ready!)
      expect(sent).toBeGreaterThanOrEqual(moving!)
      // Stages exchange activations with the other stage of their replica.
      const links = page.getByRole('region', { name: 'Table of links' })
      const rows = await links.locator('tbody tr').all()
      const matrix = await Promise.all(
        rows.map(async (row) => await row.locator('td').allTextContents()),
      )
      expect(matrix.map((row) => row.length)).toEqual([4, 4, 4, 4])
      for (const [from, row] of matrix.entries()) {
        expect(row[from]).toBe('')
        expect(row.filter((cell) => /[KM]iB$/.test(cell)).length).toBeGreaterThan(0)
      }
      expect(complaints).toEqual([])
    })

    it('fits a narrow screen in dark colours, by keyboard', async () => {
      const { page, complaints } = await newPage({ width: 390, colorScheme: 'dark' })
      await page.goto(url)
      const picture = page.getByRole('img', { name: /^Step \d+ of 4 ranks/ })
      await picture.waitFor()
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(390)
      expect(await tabsOf(page)).toEqual(everyPart)
      const colours = `(() => {
          const canvas = document.querySelector('[aria-label^="Step"]')
          const copy = new OffscreenCanvas(canvas.width, canvas.height)
          const context = copy.getContext('2d', { willReadFrequently: true })
          context.drawImage(canvas, 0, 0)
          const { data } = context.getImageData(0, 0, copy.width, copy.height)
          const seen = {}
          for (let i = 0; i < data.length; i += 4) seen[data.slice(i, i + 4).join()] = true
          return Object.keys(seen)
        })()`
      const shows = async (...wanted: readonly string[]): Promise<void> => {
        await untilHolds(async () => {
          const seen = await page.evaluate<string[]>(colours)
          return wanted.every((one) => seen.includes(one))
        })
      }
      // Forward, backward and waiting; the picture is redrawn in the other colours.
      await shows('110,163,255,255', '67,194,148,255', '240,163,90,255')
      await page.emulateMedia({ colorScheme: 'light' })
      await shows('47,111,214,255', '29,127,95,255', '217,130,43,255')
      expect(complaints).toEqual([])
    })
  })

  describeFitting(newPage, widths.slice(1))
})
