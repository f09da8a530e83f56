import { stripVTControlCharacters } from 'node:util'

/**
 * In place of the package string-width in the bundle of `tsrun`, where only yargs uses it, for help
 * pages in ASCII: the package makes tables of all emoji when it is loaded, which takes 15 ms.
 *
 * @param {string} text
 */
export default function stringWidth(text) {
  return stripVTControlCharacters(text).length
}
