// The size of the packages, and how often an idea is implemented, beside their bounds.
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { filesOf } from './check-walk.mjs'
import { fileCycles } from './graph.mjs'
import { hasProgramInString, implementationsOf, interfacesWith, validationsOf } from './syntax.mjs'

/**
 * @typedef {object} Figure
 * @property {string} what
 * @property {number} value
 * @property {number} [bound]
 * @property {readonly string[]} [which] what was counted, where there are few
 */

/**
 * @param {string} root
 * @param {readonly import('./packages.mjs').Package[]} packages
 * @param {readonly import('./imports.mjs').Import[]} imports
 * @param {readonly import('./walks.mjs').Walk[]} walks
 * @returns {Figure[]}
 */
export function figuresOf(root, packages, imports, walks) {
  const sources = packages.flatMap((each) => each.sources)
  const installed = (/** @type {readonly string[]} */ names) => {
    const all = new Set(
      packages.filter(({ name }) => names.includes(name)).flatMap((p) => p.installs),
    )
    return sum(packages.filter(({ name }) => all.has(name)).map(({ tokens }) => tokens))
  }
  const publicNames = (/** @type {string} */ name, /** @type {number} */ bound) => ({
    what: `public names of ${name} that are not types`,
    value:
      packages.find((each) => each.name === name)?.names.filter(({ isType }) => !isType).length ??
      0,
    bound,
  })
  const cycles = fileCycles(imports, { withTypes: true })
  return [
    {
      what: 'tokens of all packages',
      value: sum(packages.map(({ tokens }) => tokens)),
      bound: 478_000,
    },
    {
      what: 'tokens that launcher and training install',
      value: installed(['launcher', 'training']),
      bound: 420_000,
    },
    { what: 'tokens that distributed installs', value: installed(['distributed']), bound: 153_900 },
    {
      what: 'lines of all packages',
      value: sum(packages.map(({ lines }) => lines)),
      bound: 77_500,
    },
    publicNames('training', 90),
    publicNames('core', 60),
    listed('classes that implement Work', 1, implementationsOf(sources, 'Work')),
    listed('classes that implement Ticket', 1, implementationsOf(sources, 'Ticket')),
    listed('styles of validation', 1, validationsOf(sources)),
    listed('declarations of a weight of tf.layers', 1, interfacesWith(sources, 'originalName')),
    ...walks.map(({ name, goal, steps }) => {
      const files = filesOf(steps).filter((file) => existsSync(join(root, file)))
      return { what: `files of the walk ${name}`, value: files.length, bound: goal }
    }),
    listed(
      'programs in strings',
      0,
      sources.filter(hasProgramInString).map(({ fileName }) => shortened(root, fileName)),
    ),
    listed(
      'import circles, of types too',
      3,
      cycles.map(([edge]) => shortened(root, join(root, edge.from))),
    ),
  ]
}

/**
 * @param {string} what
 * @param {number} bound
 * @param {readonly string[]} which
 * @returns {Figure}
 */
function listed(what, bound, which) {
  return { what, value: which.length, bound, which }
}

/** @param {string} root @param {string} path */
function shortened(root, path) {
  return path.slice(join(root, 'packages/').length).replace('/src/', '/')
}

/** @param {readonly number[]} values */
function sum(values) {
  return values.reduce((total, value) => total + value, 0)
}
