import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { Page } from 'playwright-core'
import { killLeftovers, Run, tsrun, until } from '../launcher/support/tsrun.ts'
import { describeInChromium } from './support/browser.ts'

const cwd = fileURLToPath(new URL('../fixtures/ranks/', import.meta.url))
const scratch = mkdtempSync(join(tmpdir(), 'tsrun-test-'))
const [whole, killed, logs] = ['whole', 'killed', 'logs'].map((name) => join(scratch, name)) as [
  string,
  string,
  string,
]
const env = { TSRUN_HOME: join(scratch, 'home') }
beforeAll(async () => {
  const record = async (folder: string, extra: Record<string, string>): Promise<void> => {
    const flags = ['--nproc', '3', '--trace', folder, '--log-dir', logs]
    await tsrun([...flags, 'traced.mjs'], { cwd, env: { ...env, ...extra } })
  }
  await Promise.all([record(whole, {}), record(killed, { KILLED_IN: '4' })])
})
afterEach(killLeftovers)
afterAll(() => {
  rmSync(scratch, { recursive: true })
})

async function open(...folders: readonly string[]): Promise<{ run: Run; url: string }> {
  const run = new Run(['view', ...folders], { cwd, env })
  await until(() => run.stdout.endsWith('\n'), 'the address')
  return { run, url: run.stdout.trim() }
}

it('tsrun view serves steps to clients with the token, until Ctrl-C', async () => {
  const { run, url } = await open(whole)
  const { origin } = new URL(url)
  expect((await fetch(`${origin}/step?number=1`)).status).toBe(403)
  const { headers } = await fetch(url, { redirect: 'manual' })
  const cookie = headers.get('set-cookie')!.split(';')[0]!
  const step = async (query: string): Promise<unknown> => {
    const response = await fetch(`${origin}/step?${query}`, { headers: { cookie } })
    return response.status === 200 ? await response.json() : response.status
  }
  expect(await step('number=3')).toMatchObject({ step: 3 })
  for (const unknown of ['number=99', 'number=-1', 'number=', '']) {
    expect(await step(unknown)).toBe(404)
  }
  const view = (await step('number=4')) as { ranks: { bars: number[][] }[] }
  expect(view.ranks).toHaveLength(3)
  // Four micro-batches on each stage.
  for (const { bars } of view.ranks) {
    const numbers = bars.filter(([kind]) => kind === 0).map(([, , , microbatch]) => microbatch)
    expect(new Set(numbers)).toEqual(new Set([0, 1, 2, 3]))
  }
  run.signal('SIGINT')
  expect(await run.finished).toMatchObject({ code: 0 })
})

it('tsrun view refuses an unknown folder, an unknown run and an invalid port', async () => {
  const problems = [
    [['/nowhere'], '/nowhere is not a folder'],
    [[whole, '--run', 'other'], 'there is no trace of a run other in'],
    [[whole, '--port', 'x'], '--port is "x"; expected a port from 0 to 65535'],
    [[cwd], 'there is no trace in'],
  ] as const
  for (const [args, problem] of problems) {
    const { code, stderr } = await tsrun(['view', ...args], { cwd, env })
    expect({ code, stderr }).toEqual({
      code: 2,
      stderr: expect.stringContaining(problem) as string,
    })
  }
})

describeInChromium('the page', (newPage) => {
  async function visit(url: string, width?: number): Promise<[Page, complaints: string[]]> {
    const { page, complaints } = await newPage(width === undefined ? {} : { width })
    await page.goto(url)
    return [page, complaints]
  }

  const stepChart = (page: Page, step: number): Promise<void> =>
    page.getByRole('img', { name: new RegExp(`^Step ${step} of 3 ranks: `) }).waitFor()

  it('moves from step to step', async () => {
    const { run, url } = await open(whole)
    const [page, complaints] = await visit(url)
    await page.getByRole('heading', { name: 'traced.mjs' }).waitFor()
    await page.getByRole('status').getByText('recorded').waitFor()
    await page.getByText('Where the time of steps 1 to 6 went').waitFor()
    await page.getByText(/^critical path: /).waitFor()
    await stepChart(page, 6)
    await page.getByRole('slider').focus()
    await page.keyboard.press('ArrowLeft')
    await stepChart(page, 5)
    await page.keyboard.press('Home')
    await stepChart(page, 1)
    await page.keyboard.press('ArrowRight')
    await stepChart(page, 2)
    const number = page.getByRole('spinbutton', { name: 'Step' })
    await number.fill('4')
    await number.press('Enter')
    await stepChart(page, 4)
    await page.getByRole('heading', { name: 'Collectives of step 4' }).waitFor()
    await page.getByRole('img', { name: /^Loss over the steps, now 0\.\d+$/ }).waitFor()
    expect(complaints).toEqual([])
    run.signal('SIGINT')
    await run.finished
    // What cannot be had any more is said.
    await page.getByRole('slider').press('ArrowRight')
    await page.getByText('tsrun view has ended.').waitFor()
  })

  it('shows the same step in a second page without changing the first', async () => {
    const { run, url } = await open(killed)
    const [first] = await visit(url)
    const lines = first.locator('.output > div')
    await lines.first().waitFor()
    const before = await lines.count()
    const [second, complaints] = await visit(url)
    await stepChart(second, 3)
    expect(await second.locator('.output > div').count()).toBe(before)
    expect(await lines.count()).toBe(before)
    expect(complaints).toEqual([])
    run.signal('SIGINT')
    await run.finished
  })

  it('shows the failure report and the output, even on a telephone', async () => {
    const { run, url } = await open(killed)
    const [page, complaints] = await visit(url, 390)
    const report = page.getByRole('region', { name: 'Report of the failure' })
    await report.getByText('rank 1').first().waitFor()
    await stepChart(page, 3)
    const overflow = 'document.documentElement.scrollWidth - window.innerWidth'
    expect(await page.evaluate(overflow)).toBeLessThanOrEqual(0)
    expect(complaints).toEqual([])
    run.signal('SIGINT')
    await run.finished
  })
})
