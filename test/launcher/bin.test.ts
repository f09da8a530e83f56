import { spawnSync } from 'node:child_process'
import { tmpdir } from 'node:os'
import { fileURLToPath } from 'node:url'
import { OLDEST_NODE } from '../internals/launcher/doctor.ts'

const bin = fileURLToPath(new URL('../../packages/launcher/bin/tsrun.js', import.meta.url))

it('tsrun names the version that it needs on an older Node', () => {
  const pretend =
    "Object.defineProperty(process, 'versions', { value: { ...process.versions, node: '18.20.4' } })"
  const { status, stderr } = spawnSync(
    process.execPath,
    ['--import', `data:text/javascript,${encodeURIComponent(pretend)}`, bin, '--version'],
    { encoding: 'utf8' },
  )
  expect(stderr).toContain(`Install Node ${OLDEST_NODE} or later`)
  expect(status).toBe(2)
})

it.each([
  ['/proc/x', 'off'],
  ['/proc', 'off'],
  [tmpdir(), 'on'],
])('the compile cache of tsrun with TMPDIR=%s is %s', (folder, expected) => {
  const pretend =
    "import module from 'node:module'; module.enableCompileCache = () => " +
    "console.error('cache', process.env.NODE_DISABLE_COMPILE_CACHE === '1' ? 'off' : 'on')"
  const { stderr } = spawnSync(
    process.execPath,
    ['--import', `data:text/javascript,${encodeURIComponent(pretend)}`, bin, '--version'],
    { encoding: 'utf8', env: { ...process.env, TMPDIR: folder } },
  )
  expect(stderr).toBe(`cache ${expected}\n`)
})
