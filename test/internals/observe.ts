export {
  durationText,
  millisecondsText,
  numberText,
  percentText,
} from '../../packages/observe/page/formats.ts'
export { alignClocks } from '../../packages/observe/src/trace/clocks.ts'
export { SpanFileReader } from '../../packages/observe/src/trace/span-file-reader.ts'
