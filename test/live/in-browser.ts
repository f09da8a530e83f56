import type { Page } from 'playwright-core'
import { train, type Layout, type TrainedStep } from '../../examples/live/training.ts'
import type { Look, OpenPage } from '../e2e/support/browser.ts'
import { digitsOf, type LivePage } from './support.ts'

/** The losses of a training in Node. */
async function lossesInNode(html: string, layout: Layout, steps: number): Promise<number[]> {
  const losses: number[] = []
  const onStep = ({ step, loss }: TrainedStep): Promise<boolean> => {
    losses.push(loss)
    return Promise.resolve(step < steps)
  }
  await train(layout, digitsOf(html), onStep)
  return losses
}

/** What the live page promises in every browser. */
export function testLivePage(newPage: OpenPage, live: () => LivePage): void {
  /** Opens the file, and waits for its first steps. */
  async function open(look?: Look): Promise<{ page: Page; complaints: string[] }> {
    const { page, complaints } = await newPage(look)
    page.on('request', (request) => {
      if (!/^(file|data|blob):/.test(request.url())) complaints.push(request.url())
    })
    await page.goto(live().url)
    await trained(page, 2)
    return { page, complaints }
  }

  /** Waits until the page has trained so many steps, and returns their losses. */
  async function trained(page: Page, steps: number): Promise<number[]> {
    await page.waitForSelector('.losses[data-done=true]', { state: 'attached' })
    const texts = await page.locator('.losses li').allTextContents()
    expect(texts).toHaveLength(steps)
    return texts.map(Number)
  }

  async function trainOf(page: Page): Promise<number[]> {
    await page.getByLabel('Draw').selectOption('fast')
    await page.getByRole('button', { name: 'Train 20 steps' }).click()
    await page.waitForSelector('.losses[data-done=false]', { state: 'attached' })
    return await trained(page, 20)
  }

  it.each(['thread', 'workers'])(
    'trains to the losses of Node, with ranks in: %s',
    async (place) => {
      const { page, complaints } = await open()
      await page.getByLabel('Ranks are in').selectOption(place)
      expect(await page.evaluate('typeof SharedArrayBuffer')).toBe('undefined')
      const losses = await trainOf(page)
      expect(losses).toEqual(
        await lossesInNode(live().html, { lesson: '1f1b', ranks: 4, microbatches: 8 }, 20),
      )
      expect(losses.at(-1)).toBeLessThan(losses[0]! / 2)
      expect(complaints).toEqual([])
    },
  )

  it('trains with each schedule, and draws its actions', async () => {
    const { page, complaints } = await open()
    for (const name of ['naive', 'gpipe', 'interleaved', 'zb-h1']) {
      await page.getByRole('combobox', { name: /^Schedule/ }).selectOption(name)
      const losses = await trainOf(page)
      expect(losses.at(-1)).toBeLessThan(losses[0]! / 2)
      const bars = await page.locator('.timeline .slot').count()
      const actions = name === 'zb-h1' ? 3 : 2
      expect(bars).toBe((name === 'interleaved' ? 8 : 4) * 8 * actions)
      expect(await page.locator('#pipeline .facts').innerText()).toContain('loss after 20 steps')
    }
    expect(complaints).toEqual([])
  })

  it('steps through a collective with the keyboard', async () => {
    const { page, complaints } = await open()
    const event = page.locator('.event')
    await page.locator('.figure').focus()
    await page.keyboard.press('ArrowRight')
    await expectText(event, /^Rank \d sends 16 KiB to rank \d\.$/)
    await page.keyboard.press('End')
    await expectText(event, /^Rank \d has received 16 KiB from rank \d\.$/)
    const figures = page.locator('#collective .facts')
    await expectText(figures, /^0 B\s[^]*1\.50 S theory: 2\(n−1\)\/n S/)
    // Each rank has all four colours in each of its four chunks.
    expect(await page.locator('.cell.of').count()).toBe(4 * 4 * 4)
    await page.keyboard.press('Home')
    expect(await page.locator('.cell.of').count()).toBe(4 * 4)
    expect(complaints).toEqual([])
  })

  it('makes all controls reachable with the Tab key', async () => {
    const { page } = await open()
    const reached = new Set<string>()
    const total = await page.locator('button:enabled, select:enabled, input:enabled').count()
    for (let presses = 0; presses < total + 20; presses++) {
      await page.keyboard.press('Tab')
      const name = await page.evaluate<string>(
        '(() => { const { tagName, labels, textContent } = document.activeElement; return `${tagName} ${labels?.[0]?.firstChild.textContent ?? textContent}` })()',
      )
      reached.add(name)
    }
    for (const name of ['BUTTON Step ▶', 'SELECT Schedule', 'BUTTON Stop the rank']) {
      expect(reached).toContain(name)
    }
  })

  it('reports the first cause of a fault before the errors of other ranks', async () => {
    const { page, complaints } = await open()
    const report = page.getByLabel('Report')
    await page.getByRole('button', { name: 'Stop the rank' }).click()
    await expectText(report, /first cause {2}rank 2 of 4 was killed by SIGKILL[^]*exit code 137/)
    await page.getByLabel('Rank', { exact: true }).selectOption('1')
    await page.getByRole('button', { name: 'Mismatch its call' }).click()
    await expectText(report, /first cause {2}rank 1 of 4 died [^]*operations [^]*float32\[5\]/)
    expect(await report.innerText()).not.toContain('process')
    expect(complaints).toEqual([])
  })

  it('measures messages and uses the figures for its network', async () => {
    const { page, complaints } = await open()
    const before = await page.locator('#pipeline label', { hasText: 'Latency' }).innerText()
    await page.getByRole('button', { name: 'Measure' }).click()
    await page.getByRole('button', { name: 'Use these figures for the network' }).click()
    const after = await page.locator('#pipeline label', { hasText: 'Latency' }).innerText()
    expect(after).not.toBe(before)
    expect(complaints).toEqual([])
  })

  it.each([390, 1280])('fits a window of %i pixels, light or dark', async (width) => {
    const grounds = []
    for (const colorScheme of ['light', 'dark'] as const) {
      const { page, complaints } = await open({ width, colorScheme })
      const [window, hidden, ground] = await page.evaluate<[number, number, string]>(
        '(({ scrollWidth, clientWidth }) => [innerWidth, scrollWidth - clientWidth, getComputedStyle(document.body).backgroundColor])(document.documentElement)',
      )
      expect(window).toBe(width)
      expect(hidden).toBe(0)
      grounds.push(ground)
      expect(complaints).toEqual([])
    }
    expect(grounds[0]).not.toBe(grounds[1])
  })
}

/** Waits until an element has a text. */
async function expectText(locator: ReturnType<Page['locator']>, pattern: RegExp): Promise<void> {
  const deadline = Date.now() + 20_000
  let text = await locator.innerText()
  while (!pattern.test(text) && Date.now() < deadline) {
    await new Promise((resolve) => setTimeout(resolve, 20))
    text = await locator.innerText()
  }
  expect(text).toMatch(pattern)
}
