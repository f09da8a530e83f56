import { describeInFirefox } from '../e2e/support/browser.ts'
import { bundlePage, testBundle, testPrograms } from './in-browser.ts'

describeInFirefox('the entries for web pages in Firefox', (newPage) => {
  let code: string

  beforeAll(async () => {
    ;({ code } = await bundlePage())
  })

  testPrograms(newPage)
  testBundle(newPage, () => code)
})
