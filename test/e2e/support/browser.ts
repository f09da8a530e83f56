import { accessSync, constants } from 'node:fs'
import { delimiter, join } from 'node:path'
import { chromium, firefox, type Browser, type BrowserContext, type Page } from 'playwright-core'
import { needing } from '../../needs.ts'

type ColorScheme = 'dark' | 'light'

/** Maximum wait for what a page will show, in milliseconds. */
export const mostWait = 100_000

/** Debian calls it chromium, others chromium-browser or google-chrome. */
export function findChromium(): string | undefined {
  return findProgram('chromium', 'chromium-browser', 'google-chrome')
}

/** Debian calls it firefox-esr. */
function findFirefox(): string | undefined {
  return findProgram('firefox-esr', 'firefox')
}

/** The first of these programs on this machine; undefined: there is none. */
function findProgram(...programs: string[]): string | undefined {
  const folders = (process.env['PATH'] ?? '').split(delimiter)
  return folders
    .flatMap((folder) => programs.map((program) => join(folder, program)))
    .find((path) => {
      try {
        accessSync(path, constants.X_OK)
        return true
      } catch {
        return false
      }
    })
}

export async function openBrowser(executablePath: string): Promise<Browser> {
  return await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] })
}

/** Opens a Firefox as Mozilla and distributions build it, whose pages all have one colour scheme. */
async function openFirefox(executablePath: string, colorScheme: ColorScheme): Promise<Browser> {
  return await firefox.launch({
    executablePath,
    // Without a channel of Mozilla, Playwright expects a Firefox that it has patched. From 1.65 on, its
    // contexts need emulation.setMediaFeaturesOverride, which Firefox 153 does not have.
    channel: 'moz-firefox',
    firefoxUserPrefs: {
      'layout.css.prefers-color-scheme.content-override': colorScheme === 'dark' ? 0 : 1,
    },
  })
}

/** Collects what a page complains about: errors of scripts, of its console, and of its requests. */
function complaintsOf(page: Page): string[] {
  const complaints: string[] = []
  page.on('pageerror', ({ message }) => complaints.push(message))
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) complaints.push(message.text())
  })
  return complaints
}

export interface Look {
  readonly width?: number
  readonly colorScheme?: ColorScheme
}

/** An empty page in a window of its own, and what it will complain about. */
export interface NewPage {
  readonly page: Page
  readonly complaints: string[]
}

export type OpenPage = (look?: Look) => Promise<NewPage>

/**
 * Tests in the Chromium of this machine; without one, they are skipped.
 *
 * @param define - gets what opens a page
 */
export function describeInChromium(name: string, define: (newPage: OpenPage) => void): void {
  const program = findChromium()
  needing(program !== undefined, 'Chromium').describe(name, () => {
    let browser: Browser
    beforeAll(async () => {
      browser = await openBrowser(program!)
    })
    afterAll(async () => {
      await browser.close()
    })
    define(pagesOf(() => Promise.resolve(browser)))
  })
}

/** Like `describeInChromium`, in the Firefox of this machine. */
export function describeInFirefox(name: string, define: (newPage: OpenPage) => void): void {
  const program = findFirefox()
  needing(program !== undefined, 'Firefox').describe(name, () => {
    const browsers = new Map<ColorScheme, Browser>()
    const browserIn = async (colorScheme: ColorScheme): Promise<Browser> => {
      const browser = browsers.get(colorScheme) ?? (await openFirefox(program!, colorScheme))
      browsers.set(colorScheme, browser)
      return browser
    }
    beforeAll(() => browserIn('light'))
    afterAll(async () => {
      for (const browser of browsers.values()) await browser.close()
    })
    define(pagesOf(browserIn))
  })
}

/** Opens pages, and closes them after each test: a page that stays open takes time from the next one. */
function pagesOf(browserIn: (colorScheme: ColorScheme) => Promise<Browser>): OpenPage {
  const contexts: BrowserContext[] = []
  afterEach(async () => {
    for (const context of contexts.splice(0)) await context.close()
  })
  return async ({ width = 1280, colorScheme = 'light' } = {}) => {
    const browser = await browserIn(colorScheme)
    const viewport = { width, height: 900 }
    const context = await browser.newContext({ viewport, colorScheme })
    contexts.push(context)
    // Less than a test may take. The ranks behind a page start slowly on a busy machine.
    context.setDefaultTimeout(mostWait)
    const page = await context.newPage()
    return { page, complaints: complaintsOf(page) }
  }
}
