import { jest } from '@jest/globals'
import { killLeftovers } from '../launcher/support/tsrun.ts'
import { describeInChromium } from './support/browser.ts'
import { describeFitting, widths } from './support/dashboard.ts'

jest.setTimeout(120_000)
afterEach(killLeftovers)

describeInChromium('the page of a job without traces', (newPage) => {
  describeFitting(newPage, widths.slice(0, 1))
})
