import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

const script = fileURLToPath(new URL('../../scripts/public-api.mjs', import.meta.url))

it('the public names and signatures of the packages are those of test/workspace/api', () => {
  const { status, stderr } = spawnSync(process.execPath, [script, '--check'], { encoding: 'utf8' })
  // Out of date? `npm run public-api` rewrites them.
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
})
