import { loadBackend } from '@tsrun/training'
import { describeDamage } from './support/damage.ts'
import { removeFolders } from './support/folder.ts'

// thousands of loads, one a bit
afterEach(removeFolders)
beforeAll(async () => {
  await loadBackend('cpu')
})

describeDamage(1)
