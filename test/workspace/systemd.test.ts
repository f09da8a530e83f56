import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { tsrunHere } from '../launcher/support/in-process.ts'
import { needing } from '../needs.ts'

const path = fileURLToPath(new URL('../../deploy/tsrun.service', import.meta.url))
const unit = readFileSync(path, 'utf8')

/** The value of a key, which the unit has once. */
function valueOf(key: string): string {
  const found = Array.from(unit.matchAll(new RegExp(`^${key}=(.*)$`, 'gm')), ([, value]) => value!)
  expect(found).toHaveLength(1)
  return found[0]!
}

const hasSystemd = spawnSync('systemd-analyze', ['--version']).status === 0
const { describe: describeVerified } = needing(hasSystemd, 'systemd-analyze')

describe('deploy/tsrun.service', () => {
  it('starts a job again after exit code 75 and unexpected signals, and after no other code', () => {
    expect(valueOf('Restart')).toBe('on-abnormal')
    expect(valueOf('RestartForceExitStatus')).toBe('75')
    expect(valueOf('SuccessExitStatus').split(' ')).toEqual(['143', '130'])
  })

  it('gives the ranks time to save before it kills them', () => {
    const [, grace] = /^TSRUN_GRACE=(\d+)$/.exec(valueOf('Environment'))!
    expect(Number(grace)).toBeLessThan(Number(valueOf('TimeoutStopSec')))
    expect(valueOf('KillMode')).toBe('mixed')
  })

  it('has a command line that tsrun understands', async () => {
    const [command, ...args] = valueOf('ExecStart').split(' ')
    expect(command).toMatch(/\/node_modules\/\.bin\/tsrun$/)
    const folder = mkdtempSync(join(tmpdir(), 'tsrun-unit-'))
    try {
      writeFileSync(join(folder, 'package.json'), '{ "type": "module" }')
      writeFileSync(join(folder, 'train.ts'), '')
      const { code, stderr } = await tsrunHere(['--dry-run', ...args], { cwd: folder })
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    } finally {
      rmSync(folder, { recursive: true })
    }
  })
})

describeVerified('systemd', () => {
  const verify = (text: string): string => {
    const folder = mkdtempSync(join(tmpdir(), 'tsrun-unit-'))
    try {
      const file = join(folder, 'train.service')
      writeFileSync(file, text)
      return spawnSync('systemd-analyze', ['verify', file], { encoding: 'utf8' }).stderr
    } finally {
      rmSync(folder, { recursive: true })
    }
  }
  // The user and the program of the example exist on no machine that runs this test.
  const possible = unit
    .replace(/^ExecStart=\S+/m, 'ExecStart=/bin/true')
    .replace(/^(User|WorkingDirectory)=.*\n/gm, '')

  it('accepts every key of deploy/tsrun.service', () => {
    expect(verify(possible)).toBe('')
  })

  it('refuses a misspelt key', () => {
    expect(verify(possible.replace('SuccessExit', 'SucessExit'))).toMatch(/Unknown key/)
  })
})
