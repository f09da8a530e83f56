export * from './browser.ts'
export * from './functions.ts'
export * from './group-functions.ts'
export type { InitOptions, TransportName } from './groups/join/options.ts'
