import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

// What is set up on this machine must not decide what is tested: ranks inherit this, too.
// A test that needs the real set-up finds it through TSRUN_TESTS_HOME.
process.env['TSRUN_TESTS_HOME'] ??= process.env['TSRUN_HOME'] ?? ''
const folder = mkdtempSync(join(tmpdir(), 'tsrun-tests-'))
process.on('exit', () => {
  rmSync(folder, { recursive: true, force: true })
})
process.env['TSRUN_HOME'] = join(folder, 'home')
// Nor do the developer's records of runs get those of tests, whichever home these have.
process.env['TSRUN_RUNS_DIR'] = join(folder, 'runs')
// Nor does a BLAS of this machine: tests of it name one.
process.env['TSRUN_BLAS'] ??= 'off'

export const shared = {
  testEnvironment: '<rootDir>/test/environment.js',
  extensionsToTreatAsEsm: ['.ts'],
  // Packages import each other's TypeScript sources: tests need no build, but workers and ranks do.
  testEnvironmentOptions: { customExportConditions: ['@tsrun/source', 'node', 'node-addons'] },
  transform: {
    '\\.ts$': [
      '@swc/jest',
      {
        jsc: { target: 'es2022', parser: { syntax: 'typescript' } },
        module: { type: 'es6' },
        sourceMaps: true,
      },
    ],
  },
}

/** What all sets of tests share. */
export const limits = {
  maxWorkers: 2,
  // A limit for what hangs: on a loaded machine five seconds are short.
  testTimeout: 120_000,
  testSequencer: '<rootDir>/test/sequencer.js',
}

/**
 * What `npm test` runs: all but the sets with a configuration of their own.
 *
 * @type {import('jest').Config}
 */
export default {
  ...shared,
  ...limits,
  // One more than the cores of a small machine: many tests wait for processes.
  maxWorkers: 3,
  testMatch: ['<rootDir>/test/**/*.test.ts'],
  testPathIgnorePatterns: [
    '/node_modules/',
    '\\.(slow|nightly)\\.test\\.ts$',
    '<rootDir>/test/hosts/',
  ],
}
