// Compares a walk of walks.mjs with the sources.
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { declarationsOf } from './declarations.mjs'

/**
 * @typedef {import('./imports.mjs').Import} Import
 * @typedef {import('./walks.mjs').Walk} Walk
 * @typedef {import('./walks.mjs').Step} Step
 */

/**
 * What is wrong with a walk: a file or function that does not exist, a step to which no earlier one leads,
 * or more files than the bound.
 *
 * @param {string} root of the repository
 * @param {Walk} walk
 * @param {readonly Import[]} imports of the repository
 * @returns {string[]}
 */
export function problemsOf(root, { steps, bound }, imports) {
  const missing = steps.flatMap(({ file, functions, contract }) => {
    const named = [
      ...functions.map((name) => ({ file, name })),
      ...(contract === undefined ? [] : [contract]),
    ]
    return named
      .filter(({ file, name }) => !declarationsOf(join(root, file)).includes(name))
      .map(({ file, name }) => `${file} does not declare ${name}`)
  })
  const broken = steps.slice(1).flatMap((step, i) => {
    const { file, calledBy = steps[i].file } = step
    if (calledBy === file) return []
    if (!steps.slice(0, i + 1).some((earlier) => earlier.file === calledBy)) {
      return [`${calledBy}, which calls ${file}, is not an earlier step`]
    }
    return linkProblems(root, calledBy, step, imports)
  })
  const files = filesOf(steps).length
  return [
    ...missing,
    ...broken,
    ...(files > bound ? [`it passes ${files} files; at most ${bound} are allowed`] : []),
  ]
}

/**
 * The files of a walk, each once.
 *
 * @param {readonly Step[]} steps
 * @returns {string[]}
 */
export function filesOf(steps) {
  return [...new Set(steps.map(({ file }) => file))]
}

/**
 * The caller imports the file, or both import the contract between them; and it uses the name.
 *
 * @param {string} root
 * @param {string} caller
 * @param {Step} step
 * @param {readonly Import[]} imports
 */
function linkProblems(root, caller, { file, functions, calledAs, contract }, imports) {
  const name = calledAs ?? functions[0].split('.').at(-1)
  const text = existsSync(join(root, caller)) ? readFileSync(join(root, caller), 'utf8') : ''
  const links =
    contract === undefined
      ? [[caller, file]]
      : [
          [caller, contract.file],
          [file, contract.file],
        ]
  return [
    ...links
      .filter(([from, to]) => from !== to && !leads(from, to, imports))
      .map(([from, to]) => `${from} does not import ${to}`),
    ...(new RegExp(`\\b${name}\\b`).test(text) ? [] : [`${caller} does not use ${name}`]),
  ]
}

/**
 * Whether a file imports another, by its path or from an entry of a package.
 *
 * @param {string} from
 * @param {string} to
 * @param {readonly Import[]} imports
 */
function leads(from, to, imports) {
  const imported = imports.filter((each) => each.from === from).map((each) => each.to)
  return (
    imported.includes(to) ||
    imported.some(
      (door) =>
        /^packages\/[^/]+\/src\/(record\/)?(index|browser|portable)\.ts$/.test(door) &&
        leads(door, to, imports),
    )
  )
}
