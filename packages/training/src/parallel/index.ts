export * from './data/index.ts'
export * from './pipeline/index.ts'
export * from './tensor/index.ts'
export * from './zero/index.ts'
