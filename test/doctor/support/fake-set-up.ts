import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fakeTools } from './fake-tools.ts'
import { tsrunHere } from '../../launcher/support/in-process.ts'

/** For each test of a file an empty home, and tools to set TensorFlow up with that are played. */
export class FakeSetUp {
  env: NodeJS.ProcessEnv = {}

  constructor() {
    let folder: string
    beforeEach(() => {
      folder = mkdtempSync(join(tmpdir(), 'tsrun-setup-'))
      this.env = fakeTools(folder, ['npm', 'python3', 'g++'])
    })
    afterEach(() => {
      rmSync(folder, { recursive: true, force: true, maxRetries: 3 })
    })
  }

  /** `tsrun setup tensorflow`, with these changes of the environment. */
  run(changes: NodeJS.ProcessEnv, ...flags: string[]) {
    return tsrunHere(['setup', 'tensorflow', ...flags], { env: { ...this.env, ...changes } })
  }
}
