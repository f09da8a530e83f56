export * from './pipeline/index.ts'
