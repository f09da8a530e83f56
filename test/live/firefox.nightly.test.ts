import { describeInFirefox } from '../e2e/support/browser.ts'
import { allLayouts, testLivePage } from './in-browser.ts'
import { buildPage, type LivePage } from './support.ts'

let live: LivePage

beforeAll(() => {
  live = buildPage()
})

afterAll(() => {
  live.remove()
})

describeInFirefox('the live page in Firefox', (newPage) => {
  testLivePage(newPage, () => live, allLayouts)
})
