import { accessSync, constants } from 'node:fs'
import { delimiter, join } from 'node:path'
import { chromium, type Browser, type Page } from 'playwright-core'

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
export function complaintsOf(page: Page): string[] {
  const complaints: string[] = []
  page.on('pageerror', ({ message }) => complaints.push(message))
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) complaints.push(message.text())
  })
  return complaints
}
