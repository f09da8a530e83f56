import slow from './jest.slow.config.js'

/**
 * What takes longer than CI has: examples that train for minutes, all benchmarks, hundreds of faults, every
 * order of messages. See `npm run test:nightly`.
 *
 * @type {import('jest').Config}
 */
export default { ...slow, testMatch: ['<rootDir>/test/**/*.nightly.test.ts'] }
