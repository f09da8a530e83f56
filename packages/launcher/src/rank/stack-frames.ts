import { fileURLToPath } from 'node:url'

/**
 * The folder of this library's packages, with a trailing slash; undefined if this file is not inside one, for
 * example in a user's bundle.
 */
const [, packages] = /^(.*\/)launcher\/(?:src|dist)\//.exec(fileURLToPath(import.meta.url)) ?? []

/**
 * Frames that contain one of these belong to libraries: tsrun, Node.js, TensorFlow.js and module
 * loaders.
 */
const libraryPlaces = [
  ...(packages === undefined ? [] : [packages]),
  '(node:',
  ' node:',
  '/node_modules/@tsrun/',
  '/node_modules/@tensorflow/',
  '/node_modules/tsx/',
  '/node_modules/esbuild/',
]

/**
 * Omits the frames of libraries, so that the first frame is the user's line. A stack without any user
 * frame stays as it is, unless the message names the place, as for a syntax error or a missing package.
 *
 * @param text - an error as Node prints it, with its causes
 * @returns the text, and the number of omitted frames
 */
export function hideLibraryFrames(text: string) {
  const lines = text.split('\n')
  const kept: string[] = []
  for (const line of lines) {
    const isOfLibrary =
      isFrame(line) && (ANONYMOUS.test(line) || libraryPlaces.some((place) => line.includes(place)))
    if (!isOfLibrary) kept.push(line)
    // The properties of the error follow its last frame.
    else if (line.endsWith(' {') && kept.length > 0) kept.push(`${kept.pop()!} {`)
  }
  const hidden = lines.length - kept.length
  const isPlaced =
    /^SyntaxError(?: \[\w+\])?: |^TypeError \[ERR_UNKNOWN_FILE_| imported from |: ERROR: /m.test(
      text,
    )
  if (hidden === 0 || !(isPlaced || kept.some(isFrame))) return { text, hidden: 0 }
  return { text: kept.join('\n'), hidden }
}

function isFrame(line: string): boolean {
  return /^\s+at /.test(line)
}

const ANONYMOUS = /\((?:<anonymous>|index \d+)\)$/
