import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { tsrunHere } from '../support/in-process.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tsrun-hosts-'))
})
afterEach(() => {
  rmSync(folder, { recursive: true })
})

it.each(['$(touch made)', 'A;touch made', 'A=B', '1A', '`touch made`'])(
  'tsrun hosts never passes an invalid variable name to a shell: %s',
  async (name) => {
    const file = join(folder, 'hosts')
    writeFileSync(file, 'here\n')
    const ssh = ['--ssh', 'sh -c touch\\ made']
    const args = ['hosts', '--hostfile', file, ...ssh, '--env', `HOME,${name}`, '--', 'hello.mjs']
    const { code, stderr } = await tsrunHere(args, { env: { [name]: '1' }, cwd: folder })
    expect({ code, stderr }).toEqual({
      code: 2,
      stderr: expect.stringContaining(`--env: ${name} is no name of a variable`),
    })
    expect(existsSync(join(folder, 'made'))).toBe(false)
  },
)
