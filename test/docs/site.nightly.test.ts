import { describeInChromium } from '../e2e/support/browser.ts'
import { needing } from '../needs.ts'
import { isBuilt, pages, widerThan390 } from './site.ts'

needing(isBuilt, 'site: npm run site builds it').describe('the site', () => {
  describeInChromium('in Chromium', (newPage) => {
    it('fits a window of 390 pixels on every page', async () => {
      expect(pages.length).toBeGreaterThan(100)
      expect(await widerThan390(newPage, pages)).toEqual([])
    }, 600_000)
  })
})
