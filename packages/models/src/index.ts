export { exportPretrained, type ExportedState } from './export-pretrained.ts'
export { generate, type GenerateOptions, type Generative } from './generate.ts'
export {
  GPT,
  gpt,
  gptPlan,
  type CompleteGPTOptions,
  type GPTOptions,
  type GptPlanOptions,
} from './gpt.ts'
export { gpt2Names, pretrainedGPT, type PretrainedGPT } from './pretrained-gpt.ts'
export { loadTokenizer, type Tokenizer } from './tokenizer.ts'
