export { readGPT2Config } from '../../packages/models/src/gpt2-config.ts'
export { sampleToken } from '../../packages/models/src/sampling.ts'
