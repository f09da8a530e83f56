import { shared } from './jest.config.js'

/** Several hosts, made of network namespaces: needs root. See `npm run test:hosts`. */
export default {
  ...shared,
  displayName: 'hosts',
  // Each test fills the cores with the ranks of all its hosts.
  maxWorkers: 1,
  testMatch: ['<rootDir>/test/hosts/**/*.test.ts'],
}
