import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import type { Page } from 'playwright-core'
import { describeInChromium } from '../e2e/support/browser.ts'

const root = new URL('../../', import.meta.url)
const file = new URL('docs/schedules.html', root)

it('docs/schedules.html is the page that npm run explorer makes', () => {
  const made = execFileSync('node', ['scripts/explorer/main.mjs', '--stdout'], {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: 2 ** 24,
  })
  expect(readFileSync(file, 'utf8') === made).toBe(true)
})

describeInChromium('the schedule explorer in Chromium', (newPage) => {
  /** Opens the page, without a network. */
  async function open(
    hash = '',
    { width = 1280, scheme = 'light' }: { width?: number; scheme?: 'light' | 'dark' } = {},
  ): Promise<{ page: Page; complaints: string[] }> {
    const { page, complaints } = await newPage({ width, colorScheme: scheme })
    page.on('request', (request) => {
      if (!/^(file|data):/.test(request.url())) complaints.push(request.url())
    })
    await page.goto(`${file.href}${hash}`)
    await page.waitForSelector('#drawing svg')
    return { page, complaints }
  }

  const figures = (page: Page) => page.locator('#figures').innerText()

  it('draws the schedule of the form, and restores the form from the address', async () => {
    const { page, complaints } = await open()
    expect(await figures(page)).toMatch(/33\s+bubble\s+27\.3 %/)
    await page.selectOption('select[name=schedule]', 'zb-v')
    expect(await figures(page)).toMatch(/step\s+51\b/)
    expect(await page.locator('#drawing .slot-W').count()).toBe(8 * 8)
    await page.fill('input[name=transfer]', '0.5')
    expect(await page.locator('#drawing [data-reason=message]').count()).toBeGreaterThan(0)
    expect(page.url()).toContain('schedule=zb-v')
    const again = await open(new URL(page.url()).hash)
    expect(await figures(again.page)).toBe(await figures(page))
    expect([...complaints, ...again.complaints]).toEqual([])
  })

  it('explains why a slot is idle, by mouse and by keyboard', async () => {
    const { page, complaints } = await open('#schedule=gpipe&ranks=2&microbatches=1')
    const why = page.locator('#why')
    await page.hover('#drawing [data-reason=wait]')
    await expect(why.innerText()).resolves.toContain('rank 0 waits for 1B0 on rank 1, to run 0B0')
    await page.focus('#drawing')
    await page.keyboard.press('ArrowDown')
    await expect(why.innerText()).resolves.toMatch(/^rank 1 waits for 0F0|^1/)
    await page.keyboard.press('ArrowLeft')
    await expect(why.innerText()).resolves.not.toBe('')
    expect(complaints).toEqual([])
  })

  it('draws a schedule that the user enters, and reports its errors', async () => {
    const { page, complaints } = await open()
    await page.click('summary')
    await page.fill('#lists', '0F0 0B0\n1F0 1B0')
    await page.click('#use')
    expect(await page.locator('#drawing .slot').count()).toBe(4)
    await page.fill('#lists', '0B0 0F0')
    await page.click('#use')
    expect(await page.locator('#problem').innerText()).toContain('before its forward pass')
    expect(complaints).toEqual([])
  })

  it('marks the best layout, and says if no layout fits into memory', async () => {
    const { page } = await open()
    expect(await page.locator('#layouts tr.best').count()).toBe(1)
    await page.fill('#plan input[name=memory]', '1')
    expect(await page.locator('#verdict').innerText()).toContain('Nothing fits')
  })

  it.each([390, 1280])('has no scroll bar at %i pixels, light or dark', async (width) => {
    const grounds = []
    for (const scheme of ['light', 'dark'] as const) {
      const { page, complaints } = await open('#schedule=dualpipe-v', { width, scheme })
      const [wide, ground] = await page.evaluate<[number, string]>(
        '[document.documentElement.scrollWidth, getComputedStyle(document.body).backgroundColor]',
      )
      expect(wide).toBe(width)
      grounds.push(ground)
      expect(complaints).toEqual([])
    }
    expect(grounds[0]).not.toBe(grounds[1])
  })
})
