// Compiles the AssemblyScript kernels of the packages, each to its dist/kernels.wasm.
import { mkdirSync, readdirSync, renameSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const packages = fileURLToPath(new URL('../packages/', import.meta.url))

// The memory is the arena of the rank, which may have the 4 GiB that 32-bit addresses reach.
await build('distributed', [
  ...['--enable', 'threads', '--sharedMemory'],
  ...['--initialMemory', '1', '--maximumMemory', '65536'],
])
// The memory is that of the wasm backend of TensorFlow.js, which chooses its size and limit.
await build('training', ['--initialMemory', '1'])

/**
 * @param {string} name - of the package
 * @param {readonly string[]} options - for the compiler
 */
async function build(name, options) {
  const folder = join(packages, name, 'src/kernels')
  const sources = readdirSync(folder)
    .filter((file) => file.endsWith('.as.ts'))
    .map((file) => join(folder, file))
  const output = join(packages, name, 'dist/kernels.wasm')
  const newest = Math.max(...[...sources, fileURLToPath(import.meta.url)].map(modified))
  if (modified(output) < newest) await compile(join(folder, 'index.as.ts'), output, options)
}

/**
 * @param {string} entry
 * @param {string} output
 * @param {readonly string[]} options
 */
async function compile(entry, output, options) {
  const { default: asc } = await import('assemblyscript/asc')
  mkdirSync(join(output, '..'), { recursive: true })
  // Renamed when complete, so that a process that starts meanwhile never reads an incomplete module.
  const unfinished = `${output}.${process.pid}`
  const { error, stderr } = await asc.main([
    entry,
    ...['--outFile', unfinished],
    ...['-O3', '--noAssert', '--runtime', 'stub'],
    ...['--enable', 'simd', '--enable', 'bulk-memory'],
    ...['--importMemory', '--noExportMemory', ...options],
  ])
  if (error) {
    process.stderr.write(`${stderr.toString()}${error.message}\n`)
    process.exit(1)
  }
  renameSync(unfinished, output)
}

/** @param {string} path */
function modified(path) {
  return statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0
}
