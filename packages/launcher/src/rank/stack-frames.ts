import { fileURLToPath } from 'node:url'

/** The folder that holds the packages of this library, each in a folder of its own, with a slash at its end. */
const packages = ownPackages(import.meta.url)

/** Frames with one of these are not the user's: those of this library, of Node.js, TensorFlow.js and loaders. */
const libraryPlaces = [
  ...(packages === undefined ? [] : [packages]),
  '(node:',
  ' node:',
  '/node_modules/@tsrun/',
  '/node_modules/@tensorflow/',
  '/node_modules/tsx/',
]

/** The stack of an error, with the user's frames only. */
export interface ShortStack {
  readonly text: string
  /** The number of frames that are left out. */
  readonly hidden: number
}

/**
 * Leaves out the frames of libraries, so that the first frame is the user's line, however deep below it
 * the error was thrown. A stack without any frame of the user stays as it is.
 *
 * @param text - an error as Node prints it; its causes may follow
 */
export function hideLibraryFrames(text: string): ShortStack {
  const lines = text.split('\n')
  const kept = lines.filter((line) => !isFrame(line) || !isOfLibrary(line))
  const hidden = lines.length - kept.length
  if (hidden === 0 || !kept.some(isFrame)) return { text, hidden: 0 }
  return { text: kept.join('\n'), hidden }
}

function isFrame(line: string): boolean {
  return /^\s+at /.test(line)
}

function isOfLibrary(frame: string): boolean {
  return (
    libraryPlaces.some((place) => frame.includes(place)) ||
    /\((?:<anonymous>|index \d+)\)$/.test(frame)
  )
}

/** Undefined where this file is not where the package has it, as in a bundle of the user's. */
function ownPackages(url: string): string | undefined {
  const path = fileURLToPath(url)
  return /^(.*\/)launcher\/(?:src|dist)\//.exec(path)?.[1]
}
