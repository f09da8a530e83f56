import type { Argv } from 'yargs'
import type { AddCommand } from './context.ts'

/** `tsrun completion`, which prints a script for bash or zsh. */
export const addCompletion: AddCommand = (parser) =>
  parser.command(
    'completion',
    'print a completion script for bash or zsh',
    (own) =>
      own
        .usage(
          '$0 completion\n\nPrints a script for bash or zsh, whichever $SHELL is: source <(tsrun completion)',
        )
        .version(false),
    () => {
      parser.showCompletionScript()
    },
  )

/** The first argument with which that script asks for words; the line from `tsrun` on follows. */
export const COMPLETION_REQUEST = '--get-yargs-completions'

/** Answers such a request. @param inCommand - whether the line has the name of a command before its last word */
export function answerCompletion(parser: Argv, inCommand: boolean): unknown {
  return parser.completion(
    'completion',
    false,
    (
      current: string,
      _argv: unknown,
      answer: (take: (error: Error | null, words: string[] | undefined) => void) => void,
      done: (words: string[]) => void,
    ) => {
      answer((_error, found = []) => {
        done(
          current === ''
            ? // Before anything is typed, the shell completes the names of files.
              found.filter((word) => inCommand && !word.startsWith('-'))
            : found.filter((word) => word.startsWith(current)),
        )
      })
    },
  )
}
