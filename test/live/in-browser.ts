import type { Page } from 'playwright-core'
import { trainInThread } from '../../examples/live/thread.ts'
import type { Layout, TrainedStep } from '../../examples/live/training.ts'
import { root, runShell } from '../docs/run.ts'
import { mostWait, type Look, type OpenPage } from '../e2e/support/browser.ts'
import { digitsOf, type LivePage } from './support.ts'

const STEPS = 20
const address = 'http://127.0.0.1/live.html'

const usual: Layout = { lesson: '1f1b', ranks: 4, microbatches: 8 }

const lossesByLayout = new Map<string, number[]>()

/** The losses of a training in one thread of Node. */
async function lossesInNode(html: string, layout: Layout): Promise<number[]> {
  const key = JSON.stringify(layout)
  const known = lossesByLayout.get(key)
  if (known !== undefined) return known
  const losses: number[] = []
  const onStep = ({ step, loss }: TrainedStep): Promise<boolean> => {
    losses.push(loss)
    return Promise.resolve(step < STEPS)
  }
  await trainInThread(layout, digitsOf(html), onStep)
  lossesByLayout.set(key, losses)
  return losses
}

/** Divides the backward passes. */
export const oneLayout: readonly Layout[] = [{ lesson: 'zb-h1', ranks: 4, microbatches: 8 }]

export const allLayouts: readonly Layout[] = [
  ...oneLayout,
  { lesson: 'interleaved', ranks: 3, microbatches: 5 },
  { lesson: 'naive', ranks: 4, microbatches: 8 },
  { lesson: 'gpipe', ranks: 4, microbatches: 8 },
  { lesson: 'interleaved', ranks: 4, microbatches: 8 },
]

/**
 * What the live page promises in every browser.
 *
 * @param layouts - what it trains, besides the layout with which it opens
 */
export function testLivePage(
  newPage: OpenPage,
  live: () => LivePage,
  layouts: readonly Layout[],
): void {
  /** Opens the file, or the same from a host, and waits for its first steps. */
  async function open(
    look?: Look,
    { url = live().url, before = '' } = {},
  ): Promise<{ page: Page; complaints: string[] }> {
    const { page, complaints } = await newPage(look)
    page.on('request', (request) => {
      if (request.url() !== url.replace(/#.*/, '') && !/^(data|blob):/.test(request.url())) {
        complaints.push(request.url())
      }
    })
    await page.route(address, (route) =>
      route.fulfill({ contentType: 'text/html', body: live().html }),
    )
    if (before !== '') await page.addInitScript(before)
    await page.goto(url)
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
    return await trained(page, STEPS)
  }

  function sliderOf(page: Page, label: string): ReturnType<Page['locator']> {
    return page.locator('#pipeline label', { hasText: label }).locator('input')
  }

  it.each([
    ['thread', 'a file'],
    ['workers', 'a file'],
    ['workers', 'a host'],
  ])('trains to the losses of Node, with ranks in %s, opened from %s', async (place, from) => {
    const { page, complaints } = await open({}, from === 'a host' ? { url: address } : {})
    await page.locator('#pipeline').getByLabel('Ranks are in').selectOption(place)
    expect(await page.evaluate('typeof SharedArrayBuffer')).toBe('undefined')
    const losses = await trainOf(page)
    expect(losses).toEqual(await lossesInNode(live().html, usual))
    expect(losses.at(-1)).toBeLessThan(losses[0]! / 2)
    expect(complaints).toEqual([])
  })

  it.each(layouts)(
    'trains to the losses of Node and draws the actions: $lesson, $ranks ranks, $microbatches micro-batches',
    async (layout) => {
      const { lesson, ranks, microbatches } = layout
      const { page, complaints } = await open()
      await page.getByRole('combobox', { name: /^Schedule/ }).selectOption(lesson)
      await sliderOf(page, 'Ranks:').fill(String(ranks))
      await sliderOf(page, 'Micro-batches:').fill(String(microbatches))
      const losses = await trainOf(page)
      expect(losses).toEqual(await lossesInNode(live().html, layout))
      const bars = await page.locator('.timeline .slot').count()
      const stages = lesson === 'interleaved' ? 2 * ranks : ranks
      expect(bars).toBe(stages * microbatches * (lesson === 'zb-h1' ? 3 : 2))
      expect(await page.locator('#pipeline .facts').innerText()).toContain('loss after 20 steps')
      expect(complaints).toEqual([])
    },
  )

  it('names the command that prints the same losses, with a process for each rank', async () => {
    const { page } = await open()
    const command = await page.locator('#pipeline details code').textContent()
    expect(command).toMatch(/^npx tsrun --nproc 4 /)
    const { code, output } = await runShell(command!, root, mostWait)
    const losses = Array.from(output.matchAll(/step \d+: loss (\S+)/g), ([, loss]) => Number(loss))
    expect({ code, losses }).toEqual({ code: 0, losses: await lossesInNode(live().html, usual) })
  }, 120_000)

  it('trains its first step within 3 seconds of its opening', async () => {
    const times: number[] = []
    // The best of three counts, because the machine may be busy.
    while (times.length < 3 && !times.some((time) => time < 3000)) {
      const { page } = await open()
      times.push(Number(await page.locator('#first-step').getAttribute('data-milliseconds')))
    }
    expect(Math.min(...times)).toBeLessThan(3000)
  })

  it('draws a step whose passes the clock is too coarse to measure', async () => {
    const coarse = `const now = performance.now.bind(performance)
      performance.now = () => 1e6 * Math.floor(now() / 1e6)`
    const { page, complaints } = await open({}, { before: coarse })
    expect(await page.locator('.timeline .messages line').count()).toBeGreaterThan(0)
    expect(await page.locator('.timeline').innerHTML()).not.toMatch(/NaN|Infinity/)
    expect(complaints).toEqual([])
  })

  it('says in each section why it does not work', async () => {
    const { page } = await newPage()
    await page.addInitScript(`const { Memory } = WebAssembly
      WebAssembly.Memory = function (type) {
        if (type.shared && type.initial > 0) throw new Error('there is no memory')
        return new Memory(type)
      }`)
    await page.goto(live().url)
    await page.getByRole('button', { name: 'Measure' }).click()
    for (const section of ['collective', 'ping-pong', 'pipeline']) {
      await expectText(page.locator(`#${section} [role=alert]`), /there is no memory/)
    }
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
    const controls = page.locator('button, select, input, summary, [tabindex="0"]')
    const total = await controls.count()
    for (let presses = 0; presses < total + 20; presses++) {
      await page.keyboard.press('Tab')
      await page.evaluate("document.activeElement.dataset.reached = ''")
    }
    const missed = page.locator(
      ':is(button, select, input, summary, [tabindex="0"]):not([data-reached])',
    )
    expect(total).toBeGreaterThan(20)
    expect(await missed.allTextContents()).toEqual([])
  })

  it('is operated with the keyboard, and keeps the focus', async () => {
    const { page, complaints } = await open()
    const focused = (): Promise<string> => page.evaluate('document.activeElement.textContent')
    await sliderOf(page, 'Ranks:').focus()
    await page.keyboard.press('ArrowRight')
    await expectText(page.locator('#pipeline label', { hasText: 'Ranks:' }), /Ranks: 5/)
    await page.keyboard.press('ArrowLeft')
    await page.getByLabel('Draw').selectOption('fast')
    await page.getByRole('button', { name: 'Train 20 steps' }).focus()
    await page.keyboard.press('Enter')
    await page.waitForSelector('.losses[data-done=false]', { state: 'attached' })
    await trained(page, STEPS)
    expect(await focused()).toBe('Train 20 steps')
    await page.locator('.figure').focus()
    await page.keyboard.press('End')
    await page.keyboard.press('ArrowLeft')
    await page.getByRole('button', { name: 'Step ▶' }).focus()
    await page.keyboard.press('Enter')
    await expectText(page.locator('.event'), /has received/)
    expect(await focused()).toBe('Step ▶')
    await page.locator('#faults button').first().focus()
    await page.keyboard.press('Enter')
    await expectText(page.getByLabel('Report'), /first cause/)
    expect(complaints).toEqual([])
  })

  it('reports the first cause of a fault before the errors of other ranks', async () => {
    const { page, complaints } = await open()
    const faults = page.locator('#faults')
    const report = faults.getByLabel('Report')
    await faults.getByRole('button', { name: 'Stop the rank' }).click()
    await expectText(report, /first cause {2}rank 2 of 4 was killed by SIGKILL[^]*exit code 137/)
    await faults.getByLabel('Its link to').selectOption('0')
    await faults.getByRole('button', { name: 'Cut its link' }).click()
    await expectText(
      report,
      /first cause {2}rank ([02]) of 4 lost its connection to rank (?!\1)[02],/,
    )
    await faults.getByRole('combobox', { name: /^Rank(?!s)/ }).selectOption('1')
    await page.getByRole('button', { name: 'Mismatch its call' }).click()
    await expectText(report, /first cause {2}rank 1 of 4 died [^]*operations [^]*float32\[5\]/)
    expect(await report.innerText()).not.toContain('process')
    expect(complaints).toEqual([])
  })

  it.each([
    ['Stop the rank', /first cause {2}rank 1 of 4 was killed by SIGKILL, after [^]*exit code 137/],
    ['Cut its link', /first cause {2}rank ([13]) of 4 lost its connection to rank (?!\1)[13],/],
  ])('reports a fault while the pipeline trains, and trains again: %s', async (name, pattern) => {
    const { page, complaints } = await open()
    const pipeline = page.locator('#pipeline')
    const fault = pipeline.getByRole('button', { name })
    expect(await fault.getAttribute('aria-disabled')).toBe('true')
    await pipeline.getByRole('combobox', { name: /^Rank(?!s)/ }).selectOption('1')
    await pipeline.getByLabel('Its link to').selectOption('3')
    await page.getByRole('button', { name: 'Train 20 steps' }).click()
    // The page has trained two steps when it opens.
    await pipeline.locator('.losses li').nth(2).waitFor({ state: 'attached' })
    await fault.click()
    await expectText(pipeline.getByLabel('Report'), pattern)
    const losses = await trainOf(page)
    expect(losses).toEqual(await lossesInNode(live().html, usual))
    expect(await pipeline.getByLabel('Report').count()).toBe(0)
    expect(complaints).toEqual([])
  })

  it('records a collective and measures messages with ranks in workers', async () => {
    const { page, complaints } = await open()
    const collective = page.locator('#collective')
    const logged = async (): Promise<string[]> =>
      (await collective.locator('.log li').allInnerTexts()).sort()
    const inThread = await logged()
    await page.getByRole('combobox', { name: /^Algorithm/ }).selectOption('recursive-doubling')
    await collective.getByLabel('Ranks are in').selectOption('workers')
    await expectText(collective.locator('.event'), /; 8 messages follow/)
    await page.getByRole('combobox', { name: /^Algorithm/ }).selectOption('ring')
    await expectText(collective.locator('.event'), /; 24 messages follow/)
    expect(await logged()).toEqual(inThread)
    await page.locator('.figure').focus()
    await page.keyboard.press('End')
    expect(await page.locator('.cell.of').count()).toBe(4 * 4 * 4)
    const messages = page.locator('#ping-pong')
    await messages.getByLabel('Ranks are in').selectOption('workers')
    await page.getByRole('button', { name: 'Measure' }).click()
    await expectText(messages.locator('.facts'), /bandwidth β/)
    expect(await messages.locator('.point').count()).toBe(8)
    expect(complaints).toEqual([])
  })

  it('keeps the settings in its address', async () => {
    const { page } = await open()
    await page.getByRole('combobox', { name: /^Collective/ }).selectOption('broadcast')
    await page.getByRole('combobox', { name: /^Schedule/ }).selectOption('zb-h1')
    await sliderOf(page, 'Ranks:').fill('5')
    const { page: other, complaints } = await open({}, { url: page.url() })
    expect(await other.getByRole('combobox', { name: /^Collective/ }).inputValue()).toBe(
      'broadcast',
    )
    expect(await other.getByRole('combobox', { name: /^Schedule/ }).inputValue()).toBe('zb-h1')
    expect(await sliderOf(other, 'Ranks:').inputValue()).toBe('5')
    await other.goto(`${live().url}#schedule=none&ranks=99`)
    await other.reload()
    await trained(other, 2)
    expect(await sliderOf(other, 'Ranks:').inputValue()).toBe('4')
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

  it('fits windows of 390 and 1280 pixels, light and dark', async () => {
    const grounds = []
    for (const colorScheme of ['light', 'dark'] as const) {
      const { page, complaints } = await open({ width: 390, colorScheme })
      for (const width of [390, 1280]) {
        await page.setViewportSize({ width, height: 900 })
        const [window, hidden, ground] = await page.evaluate<[number, number, string]>(
          '(({ scrollWidth, clientWidth }) => [innerWidth, scrollWidth - clientWidth, getComputedStyle(document.body).backgroundColor])(document.documentElement)',
        )
        expect(window).toBe(width)
        expect(hidden).toBe(0)
        grounds.push(ground)
      }
      expect(complaints).toEqual([])
    }
    const [light, wideLight, dark, wideDark] = grounds
    expect([wideLight, wideDark]).toEqual([light, dark])
    expect(light).not.toBe(dark)
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
