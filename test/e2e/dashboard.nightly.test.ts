import { killLeftovers } from '../launcher/support/tsrun.ts'
import { describeInChromium } from './support/browser.ts'
import { describeFitting, widths } from './support/dashboard.ts'

afterEach(killLeftovers)

describeInChromium('the page of a job without traces', (newPage) => {
  describeFitting(newPage, widths.slice(0, 1))
})
