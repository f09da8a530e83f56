export { exportPretrained, type ExportedState } from './export-pretrained.ts'
export { generate, type GenerateOptions, type Generative } from './generate.ts'
export { pretrainedGPT, type PretrainedGPT } from './pretrained-gpt.ts'
