// The parts of docs/architecture.md that are made from the sources, and the drawings beside it.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { format, resolveConfig } from 'prettier'
import { filesOf } from './check-walk.mjs'
import { placesOf } from './declarations.mjs'
import { drawFolders, drawPackages } from './drawing.mjs'
import { drawWalk } from './walk-drawing.mjs'
import { walks } from './walks.mjs'

/** Packages that are drawn with their folders. The others have few folders. */
const drawn = ['distributed', 'training', 'launcher']

/**
 * Everything that is generated, by its path from the root of the repository.
 *
 * @param {string} root
 * @param {Awaited<ReturnType<typeof import('./imports.mjs').readImports>>} graph
 * @returns {Promise<Record<string, string>>}
 */
export async function generate(root, { files, imports }) {
  const page = 'docs/architecture.md'
  const folders = drawn.map(async (name) => [
    `docs/images/folders-${name}.svg`,
    await drawFolders(name, files, imports),
  ])
  const paths = walks.map((walk) => [`docs/images/walk-${walk.name}.svg`, drawWalk(walk)])
  return {
    [page]: await fillIn(join(root, page), placesOf(root, files, 'reduceScatter')),
    'docs/images/packages.svg': await drawPackages(files, imports),
    ...Object.fromEntries([...(await Promise.all(folders)), ...paths]),
  }
}

/**
 * The page, with new contents between its marks.
 *
 * @param {string} path
 * @param {readonly string[]} places that declare a collective
 */
async function fillIn(path, places) {
  const contents = {
    places: places.map((file) => `- [${shortened(file)}](../${file})`).join('\n'),
    ...Object.fromEntries(walks.map((walk) => [walk.name, tableOf(walk)])),
  }
  let text = readFileSync(path, 'utf8')
  for (const [name, content] of Object.entries(contents)) {
    const marks = new RegExp(`(<!-- generated: ${name} -->\n).*?(<!-- end -->)`, 's')
    text = text.replace(marks, (_, begin, end) => `${begin}\n${content}\n\n${end}`)
  }
  return await format(text, { ...(await resolveConfig(path)), parser: 'markdown' })
}

/** @param {import('./walks.mjs').Walk} walk */
function tableOf({ steps, bound }) {
  const files = filesOf(steps)
  const rows = steps.map(({ file, functions, does, contract }) => {
    const names = functions.map((name) => `\`${name}\``).join(', ')
    const through = contract === undefined ? '' : ` (through \`${contract.name}\`)`
    return `| ${files.indexOf(file) + 1} | [${shortened(file)}](../${file}) | ${names}${through} | ${does} |`
  })
  return [
    '| file | path | function | what it does |',
    '| ---: | --- | --- | --- |',
    ...rows,
    '',
    `These are ${files.length} files; the bound is ${bound}.`,
  ].join('\n')
}

/**
 * `core/codec.ts` of packages/core/src/codec.ts.
 *
 * @param {string} file
 */
function shortened(file) {
  return file.replace(/^packages\/([^/]+)\/src\//, '$1/')
}
