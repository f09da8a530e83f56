export { tensorflowBackend } from './backend.ts'
export { loadTensorFlow } from './load.ts'
