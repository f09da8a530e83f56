import { describeInChromium } from '../e2e/support/browser.ts'
import { oneLayout, testLivePage } from './in-browser.ts'
import { buildPage, type LivePage } from './support.ts'

let live: LivePage

beforeAll(() => {
  live = buildPage()
})

afterAll(() => {
  live.remove()
})

it('the page is one file below 2 MB that names no other', () => {
  expect(Buffer.byteLength(live.html)).toBeLessThan(2e6)
  expect(live.html.match(/<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)="(?!data:)/g)).toBeNull()
})

describeInChromium('the live page in Chromium', (newPage) => {
  testLivePage(newPage, () => live, oneLayout)
})
