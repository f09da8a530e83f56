// Builds the documentation as a site in docs/.vitepress/dist: npm run site.
// npm run site -- [--base /tsrun/] [--serve]
//
// Installs what docs/package-lock.json names into docs/node_modules, gathers the pages in
// docs/.vitepress/pages with links that fit the site, adds the live page and pages for the entry points
// of the packages (typedoc), and lets VitePress build them. A dead link, and a public name without
// documentation, are errors. --base: the path below which the site is published. --serve: shows the site
// afterwards.
import { spawnSync } from 'node:child_process'
import { copyFileSync, mkdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { entries } from '../../docs/.vitepress/sidebar.mjs'
import { listAssets, listPages, renderPage, sitePathOf } from './pages.mjs'

const root = fileURLToPath(new URL('../..', import.meta.url))
const docs = join(root, 'docs')
const pages = join(docs, '.vitepress/pages')
const site = join(docs, '.vitepress/dist')

const { values } = parseArgs({
  options: { base: { type: 'string', default: '/' }, serve: { type: 'boolean', default: false } },
})

if (timeOf('node_modules/.package-lock.json') < timeOf('package-lock.json')) {
  run('npm', 'ci', '--ignore-scripts')
}

for (const folder of [pages, site]) rmSync(folder, { recursive: true, force: true })
const titles = new Map(entries)
for (const path of listPages()) {
  writeFileSync(prepare(path), renderPage(path, titles.get(path)))
}
for (const path of listAssets()) copyFileSync(join(root, path), prepare(path))

run(process.execPath, '../scripts/live.mjs', '--out', join(pages, 'public/live.html'))
run(process.execPath, '.vitepress/reference.mjs')
const vitepress = 'node_modules/vitepress/bin/vitepress.js'
run(process.execPath, vitepress, 'build', '--base', values.base)
if (values.serve) run(process.execPath, vitepress, 'preview', '--base', values.base)

/** The path of a page or an asset among the gathered ones, whose folder exists. */
function prepare(/** @type {string} */ path) {
  const place = join(pages, sitePathOf(path))
  mkdirSync(dirname(place), { recursive: true })
  return place
}

/** When a file of docs was written; 0 if it does not exist. */
function timeOf(/** @type {string} */ path) {
  return statSync(join(docs, path), { throwIfNoEntry: false })?.mtimeMs ?? 0
}

function run(/** @type {string} */ command, /** @type {string[]} */ ...args) {
  const { status, error } = spawnSync(command, args, { cwd: docs, stdio: 'inherit' })
  if (error !== undefined) throw error
  if (status !== 0) process.exit(status ?? 1)
}
