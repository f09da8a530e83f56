import { fileURLToPath } from 'node:url'

/** The folder of this library's packages, with a trailing slash. */
const packages = ownPackages(import.meta.url)

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
    if (!isFrame(line) || !isOfLibrary(line)) kept.push(line)
    // The properties of the error follow its last frame.
    else if (line.endsWith(' {') && kept.length > 0) kept.push(`${kept.pop()!} {`)
  }
  const hidden = lines.length - kept.length
  const isPlaced =
    /^SyntaxError(?: \[\w+\])?: |^Type\w* \[ERR_UNKNOWN_FILE_| imported from |: ERROR: /m.test(text)
  if (hidden === 0 || !(isPlaced || kept.some(isFrame))) return { text, hidden: 0 }
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

/** Undefined if this file is not inside the package, for example in a user's bundle. */
function ownPackages(url: string): string | undefined {
  const path = fileURLToPath(url)
  return /^(.*\/)launcher\/(?:src|dist)\//.exec(path)?.[1]
}
