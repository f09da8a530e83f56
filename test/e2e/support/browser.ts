import { accessSync, constants } from 'node:fs'
import { join } from 'node:path'
import { chromium, type Browser, type Page } from 'playwright-core'

/** The Chromium of this machine; undefined: there is none. */
export function findChromium(): string | undefined {
  const folders = (process.env['PATH'] ?? '').split(':')
  return folders
    .map((folder) => join(folder, 'chromium'))
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
