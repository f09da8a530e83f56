import { describeInChromium } from '../e2e/support/browser.ts'
import { testPrograms } from './in-browser.ts'

describeInChromium('docs/browser.md in Chromium', testPrograms)
