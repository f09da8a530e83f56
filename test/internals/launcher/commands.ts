export { readTexts, runCommandLine } from '../../../packages/launcher/src/commands/command-line.ts'
export { parse } from '../../../packages/launcher/src/commands/parse.ts'
export { commandNames } from '../../../packages/launcher/src/commands/table.ts'
export { topText } from '../../../packages/launcher/src/commands/running-jobs.ts'
