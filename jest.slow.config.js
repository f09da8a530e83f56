import { limits, shared } from './jest.config.js'

/**
 * What is slow by nature: documentation that trains, pages in a browser, faults in every transport, long
 * random programs. See `npm run test:slow`.
 *
 * @type {import('jest').Config}
 */
export default {
  ...shared,
  ...limits,
  // As for `npm test`: many tests wait for processes.
  maxWorkers: 3,
  testMatch: ['<rootDir>/test/**/*.slow.test.ts'],
}
