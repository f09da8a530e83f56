import { accessSync, constants } from 'node:fs'
import { delimiter, join } from 'node:path'
import { chromium, type Browser, type Page } from 'playwright-core'
import { needing } from '../../needs.ts'

/** Debian calls it chromium, others chromium-browser or google-chrome. */
const programs = ['chromium', 'chromium-browser', 'google-chrome']

/** The Chromium of this machine; undefined: there is none. */
export function findChromium(): string | undefined {
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
  readonly colorScheme?: 'dark' | 'light'
}

/** An empty page in a window of its own, and what it will complain about. */
export interface NewPage {
  readonly page: Page
  readonly complaints: string[]
}

/**
 * Tests in the Chromium of this machine; without one, they are skipped.
 *
 * @param define - gets what opens a page
 */
export function describeInChromium(
  name: string,
  define: (newPage: (look?: Look) => Promise<NewPage>) => void,
): void {
  const program = findChromium()
  needing(program !== undefined, 'Chromium').describe(name, () => {
    let browser: Browser
    beforeAll(async () => {
      browser = await openBrowser(program!)
    })
    afterAll(async () => {
      await browser.close()
    })
    define(async ({ width = 1280, colorScheme = 'light' } = {}) => {
      const viewport = { width, height: 900 }
      const context = await browser.newContext({ viewport, colorScheme })
      const page = await context.newPage()
      return { page, complaints: complaintsOf(page) }
    })
  })
}
