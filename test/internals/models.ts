export { sampleToken } from '../../packages/models/src/generate.ts'
export { readGPT2Config } from '../../packages/models/src/pretrained-gpt.ts'
