import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { drawCollectives } from '../../scripts/collectives-svg.mjs'

it('the picture of the collectives shows what they do', async () => {
  const drawn = readFileSync(join('docs', 'images', 'collectives.svg'), 'utf8')
  expect(await drawCollectives()).toBe(drawn)
})
