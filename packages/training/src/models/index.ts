export { generate, type GenerateOptions, type Generative } from './generate.ts'
