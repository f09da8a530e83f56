// Bundles the JavaScript of every package into a few files in its dist: a rank loads some ten files
// in place of some six hundred, which halves the time that it takes to start. The declarations are
// those of tsc; what is imported from other packages stays outside.
import { existsSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build, transform } from 'esbuild'

const root = fileURLToPath(new URL('../packages/', import.meta.url))

/**
 * What is started, or loaded by its path, beside what a package exports. Bundles lie flat in dist.
 *
 * @type {Record<string, Record<string, string>>}
 */
const programs = {
  distributed: { kernels: 'src/kernels/kernels.ts' },
  doctor: {
    'blas-proof': 'src/setup/blas-proof.ts',
    probe: 'src/host/probe.ts',
    'proof-process': 'src/setup/proof-process.ts',
  },
  launcher: {
    program: 'src/rank/program.ts',
    spawned: 'src/spawn/spawned.ts',
    'typescript-hooks': 'src/rank/typescript/hooks.ts',
    'typescript-loader': 'src/rank/typescript/loader.ts',
  },
  mpi: { 'store-thread': 'src/store-thread.ts' },
  training: { 'writer-thread': 'src/checkpoint/writer-thread.ts' },
}

/**
 * Programs that are complete: the JavaScript of other packages is part of them, because a process that
 * starts pays for each file that it searches. What they load later, by `require`, is not: it is among the
 * dependencies of the package. The names are those of packages.
 *
 * @type {Record<string, Record<string, string>>}
 */
const completePrograms = {
  distributed: { 'worker-main': 'src/runners/worker-main.ts' },
  launcher: { main: 'src/main.ts', preload: 'src/rank/preload.ts' },
}

/**
 * What few ranks use of Node's modules that are slow to load. In the bundles, the first call loads the
 * module.
 *
 * @type {Record<string, readonly string[]>}
 */
const loadedLate = {
  'node:dgram': ['createSocket'],
  'node:dns/promises': ['lookup'],
  'node:perf_hooks': ['PerformanceObserver'],
  'node:tls': ['connect', 'createServer'],
}

/**
 * The functions and classes of `loadedLate`.
 *
 * @type {import('esbuild').Plugin}
 */
const lateModules = {
  name: 'late-modules',
  setup({ onResolve, onLoad }) {
    const filter = new RegExp(`^(${Object.keys(loadedLate).join('|')})$`)
    onResolve({ filter }, ({ path }) => ({ path, namespace: 'late', sideEffects: false }))
    onLoad({ filter, namespace: 'late' }, ({ path }) => {
      const define = (/** @type {string} */ name) =>
        `export function ${name}(...args) {
          const { ${name}: late } = process.getBuiltinModule('${path}')
          return new.target ? new late(...args) : late(...args)
        }`
      return { contents: loadedLate[path].map(define).join('\n') }
    })
  },
}

/**
 * Makes the code of other packages short, because a process parses all of it when it starts.
 *
 * @type {import('esbuild').Plugin}
 */
const shortened = {
  name: 'shortened',
  setup({ onLoad }) {
    onLoad({ filter: /\/node_modules\/.*\.m?js$/ }, async ({ path }) => {
      const { code } = await transform(readFileSync(path, 'utf8'), { minify: true })
      return { contents: code }
    })
  },
}

const withSources = readdirSync(root).filter((name) => existsSync(join(root, name, 'src')))
await Promise.all(withSources.map(bundle))
// CommonJS, as TensorFlow.js itself is for Node, and complete: see its source.
await bundleAlone('training', 'src/tfjs/gradients.ts', 'gradients.cjs')
// Threads that are started from the text of their program: see rank/start-thread.ts.
await bundleAlone('launcher', 'src/rank/threads/watch.ts', 'watch.cjs')
await bundleAlone('launcher', 'src/rank/threads/relay.ts', 'relay.cjs')

// The page of the dashboard: static files that load nothing else.
await bundlePage('observe', 'page')

/** @param {string} name - of the package's folder */
async function bundle(name) {
  const folder = join(root, name)
  /** @satisfies {import('esbuild').BuildOptions} */
  const options = {
    absWorkingDir: folder,
    outdir: 'dist',
    write: false,
    bundle: true,
    splitting: true,
    chunkNames: 'shared-[hash]',
    format: 'esm',
    platform: 'node',
    target: 'node20.19',
    logLevel: 'warning',
    plugins: [lateModules, shortened],
  }
  const { browser, ...entryPoints } = { ...exportsOf(folder), ...programs[name] }
  // Other packages stay outside. Those that every rank loads are a part of core.
  const packages = name === 'core' ? 'bundle' : 'external'
  const { outputFiles, metafile } = await build({
    ...options,
    entryPoints,
    packages,
    metafile: true,
  })
  const licensed = Object.keys(metafile.inputs)
  for (const [program, source] of Object.entries(completePrograms[name] ?? {})) {
    const { outputFiles: files, metafile } = await build({
      ...options,
      entryPoints: { [program]: source },
      chunkNames: `${program}-[hash]`,
      conditions: ['@tsrun/source'],
      // CommonJS, which only `--chaos` loads, and what only programs use.
      external: ['yaml', '@opentelemetry/api'],
      alias: { 'string-width': join(root, '../scripts/string-width.mjs') },
      metafile: true,
    })
    outputFiles.push(...files)
    licensed.push(...Object.keys(metafile.inputs))
  }
  if (browser !== undefined) {
    const { outputFiles: files, metafile } = await bundleForBrowser(folder, browser)
    outputFiles.push(...files)
    licensed.push(...Object.keys(metafile.inputs))
  }
  if (licensed.some((input) => input.includes('node_modules'))) {
    const notice = licenses(folder, licensed, `@tsrun/${name}`)
    put(join(folder, 'dist/THIRD-PARTY-LICENSES.txt'), Buffer.from(notice))
  }
  for (const { path, text } of outputFiles) {
    put(path, Buffer.from(path.endsWith('browser.js') ? text : withoutFacades(text)))
  }
  removeOthers(join(folder, 'dist'), new Set(outputFiles.map(({ path }) => path)))
}

/**
 * Takes Node's modules from `process`. An import would load everything that a module exports, such as
 * the Web Crypto API of `node:crypto`.
 *
 * @param {string} text - a module
 */
function withoutFacades(text) {
  return text.replaceAll(
    /^import (?:\* as )?(\w+)?,? ?(\{[^}]*\})? from "(node:[\w/]+)";$/gm,
    (_, whole, names, path) =>
      [whole, names?.replaceAll(' as ', ': ')]
        .filter((target) => target !== undefined)
        .map((target) => `const ${target} = process.getBuiltinModule("${path}");`)
        .join(' '),
  )
}

/**
 * The entry for web pages. It is complete, so that a page can load it without a bundler. Names of classes
 * are kept, because ranks compare them.
 *
 * @param {string} folder - of the package
 * @param {string} source
 */
async function bundleForBrowser(folder, source) {
  const { outputFiles, metafile } = await build({
    absWorkingDir: folder,
    entryPoints: { browser: source },
    outdir: 'dist',
    write: false,
    bundle: true,
    minifySyntax: true,
    minifyWhitespace: true,
    metafile: true,
    format: 'esm',
    platform: 'browser',
    target: 'es2022',
    conditions: ['@tsrun/source'],
    // What is not used of a package may import them all the same.
    external: ['node:*'],
    loader: { '.wasm': 'binary' },
    // publint takes a minified module for CommonJS without it.
    banner: { js: 'export {}' },
    logLevel: 'warning',
  })
  const imports = Object.values(metafile.outputs).flatMap(({ imports }) => imports)
  if (imports.length > 0) throw new Error(`${source} imports ${imports[0].path}`)
  return { outputFiles, metafile }
}

/**
 * The licences of the packages that became a part of programs.
 *
 * @param {string} folder - of the program's package
 * @param {readonly string[]} sources - files, relative to the folder
 * @param {string} what - contains them
 */
function licenses(folder, sources, what) {
  const texts = packagesOf(folder, sources).map((path) => {
    const { name, version, license } = JSON.parse(readFileSync(join(path, 'package.json'), 'utf8'))
    const text = licenseOf(path, license)
    if (text === undefined) throw new Error(`${name} has no text of its licence`)
    return `${name} ${version} (${license})\n\n${text.trim()}\n`
  })
  return `${what} contains these packages.\n\n${texts.join(`\n${'-'.repeat(80)}\n\n`)}`
}

/**
 * Returns the folders of third-party packages that contain these sources.
 *
 * @param {string} folder - of our package
 * @param {readonly string[]} sources - files, relative to the folder
 */
function packagesOf(folder, sources) {
  const packages = sources.flatMap((input) => {
    const [path] = /^[^(]*node_modules\/(@[^/]+\/)?[^/]+/.exec(input) ?? []
    return path === undefined ? [] : [join(folder, path)]
  })
  return [...new Set(packages)].sort()
}

/**
 * The text of a licence: a file of the package, the end of its README, or the same licence of this
 * repository.
 *
 * @param {string} path - of the package
 * @param {string} license
 */
function licenseOf(path, license) {
  const read = (/** @type {string} */ file) => readFileSync(join(path, file), 'utf8')
  const file = readdirSync(path).find((entry) => /^licen[cs]e/i.test(entry))
  if (file !== undefined) return read(file)
  if (license === 'Apache-2.0') return readFileSync(join(root, '../LICENSE'), 'utf8')
  return /^LICENSE \(\w+\)\n-+\n(.*)/ms.exec(read('README.md'))?.[1]
}

/**
 * A file that shares nothing with the others, and contains what it imports from other packages.
 *
 * @param {string} name - of the package's folder
 * @param {string} source
 * @param {string} target - in dist
 */
async function bundleAlone(name, source, target) {
  const folder = join(root, name)
  const { outputFiles, metafile } = await build({
    absWorkingDir: folder,
    entryPoints: [source],
    outfile: `dist/${target}`,
    write: false,
    bundle: true,
    metafile: true,
    format: 'cjs',
    platform: 'node',
    target: 'node20.19',
    logLevel: 'warning',
  })
  for (const path of packagesOf(folder, Object.keys(metafile.inputs))) {
    const { name: used } = JSON.parse(readFileSync(join(path, 'package.json'), 'utf8'))
    const notice = readFileSync(join(folder, 'dist/THIRD-PARTY-LICENSES.txt'), 'utf8')
    if (!notice.includes(`\n${used} `)) throw new Error(`${target}: no notice of ${used}`)
  }
  for (const { path, contents } of outputFiles) put(path, contents)
}

/**
 * The files of a page: its HTML, and everything else in one script and one style sheet.
 *
 * @param {string} name - of the package's folder
 * @param {string} source - the folder of the page in it
 */
async function bundlePage(name, source) {
  const folder = join(root, name)
  const { outputFiles, metafile } = await build({
    absWorkingDir: folder,
    entryPoints: { dashboard: `${source}/main.tsx` },
    outdir: 'dist',
    write: false,
    bundle: true,
    minify: true,
    metafile: true,
    format: 'esm',
    platform: 'browser',
    target: 'es2022',
    jsx: 'automatic',
    jsxImportSource: 'preact',
    logLevel: 'warning',
  })
  for (const { path, contents } of outputFiles) put(path, contents)
  put(join(folder, 'dist/dashboard.html'), readFileSync(join(folder, source, 'dashboard.html')))
  const notice = licenses(folder, Object.keys(metafile.inputs), 'The page of the dashboard')
  put(join(folder, 'dist/THIRD-PARTY-LICENSES.txt'), Buffer.from(notice))
}

/**
 * The exported modules of a package, by the name of their file in dist.
 *
 * @param {string} folder
 */
function exportsOf(folder) {
  const manifest = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'))
  return Object.fromEntries(
    Object.values(manifest.exports).flatMap((target) =>
      typeof target === 'string'
        ? []
        : [
            [
              /** @type {string} */ (target.default).slice('./dist/'.length, -'.js'.length),
              target['@tsrun/source'],
            ],
          ],
    ),
  )
}

/**
 * Leaves what has not changed, and replaces the rest at once: a process that starts meanwhile never
 * reads half a file.
 *
 * @param {string} path
 * @param {Uint8Array} contents
 */
function put(path, contents) {
  try {
    if (readFileSync(path).equals(contents)) return
  } catch {
    // a new one
  }
  const unfinished = `${path}.${process.pid}`
  writeFileSync(unfinished, contents)
  renameSync(unfinished, path)
}

/**
 * Removes the code of former builds.
 *
 * @param {string} dist
 * @param {ReadonlySet<string>} kept
 */
function removeOthers(dist, kept) {
  for (const entry of readdirSync(dist, { recursive: true, withFileTypes: true })) {
    const path = join(entry.parentPath, entry.name)
    if (/\.js(\.map)?$/.test(entry.name) && !kept.has(path)) rmSync(path)
  }
}
