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
export {
  gpt2Names,
  pretrainedGPT,
  type GPT2NamesOptions,
  type PretrainedGPT,
} from './pretrained-gpt.ts'
export {
  loadTokenizer,
  trainTokenizer,
  type Tokenizer,
  type TrainTokenizerOptions,
} from './tokenizer.ts'
