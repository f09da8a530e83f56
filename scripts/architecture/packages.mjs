// The packages of a checkout: their sources, what is counted in them, and what each installs.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { exportsOf, parse, tokensOf } from './syntax.mjs'

/**
 * @typedef {object} Package
 * @property {string} name of its folder
 * @property {readonly string[]} installs the packages of the checkout that npm installs with it, and itself
 * @property {readonly import('typescript').SourceFile[]} sources TypeScript below src/ and page/
 * @property {number} tokens of the sources
 * @property {number} lines of the sources, and of C++
 * @property {readonly { name: string, isType: boolean }[]} names that its main entry exports
 */

/**
 * @param {string} root
 * @returns {Package[]}
 */
export function readPackages(root) {
  const names = readdirSync(join(root, 'packages'))
  const withSources = names.filter((name) => existsSync(join(root, 'packages', name, 'src')))
  return withSources.map((name) => {
    const folder = join(root, 'packages', name)
    const files = ['src', 'page']
      .filter((part) => existsSync(join(folder, part)))
      .flatMap((part) =>
        readdirSync(join(folder, part), { recursive: true, encoding: 'utf8' }).map((file) =>
          join(folder, part, file),
        ),
      )
    const sources = files.filter((file) => /\.tsx?$/.test(file)).map(parse)
    return {
      name,
      installs: installedWith(root, name),
      sources,
      tokens: sum(sources.map(tokensOf)),
      lines: sum(files.filter((file) => /\.(tsx?|cc|h)$/.test(file)).map(linesOf)),
      names: exportsOf(join(folder, 'src/index.ts')),
    }
  })
}

/**
 * @param {string} root
 * @param {string} name
 * @returns {string[]}
 */
function installedWith(root, name) {
  const file = join(root, 'packages', name, 'package.json')
  const { dependencies = {} } = JSON.parse(readFileSync(file, 'utf8'))
  const ours = Object.keys(dependencies).filter((each) => each.startsWith('@tsrun/'))
  const others = ours.flatMap((each) => installedWith(root, each.slice('@tsrun/'.length)))
  return [...new Set([name, ...others])]
}

/** @param {string} file */
function linesOf(file) {
  return readFileSync(file, 'utf8').split('\n').length - 1
}

/** @param {readonly number[]} values */
function sum(values) {
  return values.reduce((total, value) => total + value, 0)
}
