// Writes docs/schedules.html, the schedule explorer: one page without network, made of the same TypeScript
// that pipelines run: npm run explorer; with --stdout it only prints it.
import { readFileSync, writeFileSync } from 'node:fs'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { build } from 'esbuild'

const here = (/** @type {string} */ name) => fileURLToPath(new URL(name, import.meta.url))

/**
 * The one thing of Node that is used.
 *
 * @type {import('esbuild').Plugin}
 */
const browserTypes = {
  name: 'browser-types',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /^node:util\/types$/ }, ({ path }) => ({ path, namespace: 'browser' }))
    onLoad({ filter: /.*/, namespace: 'browser' }, () => ({
      contents: 'export const isPromise = (value) => value instanceof Promise',
    }))
  },
}

/** @returns {Promise<string>} the page */
async function explorerPage() {
  const { outputFiles } = await build({
    entryPoints: [here('page.mjs')],
    bundle: true,
    minify: true,
    write: false,
    charset: 'utf8',
    format: 'esm',
    target: 'es2023',
    platform: 'browser',
    conditions: ['@tsrun/source'],
    // What core has for Node alone is not used here, and is left out of the bundle.
    external: ['node:*'],
    plugins: [browserTypes],
    legalComments: 'none',
    logLevel: 'warning',
  })
  const script = /** @type {{ text: string }} */ (outputFiles[0]).text.trim()
  if (/\brequire\(|node:/.test(script)) throw new Error('the explorer needs a module of Node')
  return readFileSync(here('page.html'), 'utf8')
    .replace('/* style */', () => readFileSync(here('page.css'), 'utf8').trim())
    .replace('/* script */', () => script.replaceAll('</script', '<\\/script'))
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const page = await explorerPage()
  if (process.argv.includes('--stdout')) process.stdout.write(page)
  else writeFileSync(here('../../docs/schedules.html'), page)
}
