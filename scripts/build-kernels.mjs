// Compiles the AssemblyScript kernels of packages/distributed to dist/kernels.wasm.
import { mkdirSync, readdirSync, renameSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../packages/distributed/', import.meta.url))
const folder = join(root, 'src/kernels')
const sources = readdirSync(folder)
  .filter((name) => name.endsWith('.as.ts'))
  .map((name) => join(folder, name))
const output = join(root, 'dist/kernels.wasm')

if (modified(output) < Math.max(...[...sources, fileURLToPath(import.meta.url)].map(modified))) {
  await compile()
}

async function compile() {
  const { default: asc } = await import('assemblyscript/asc')
  mkdirSync(join(root, 'dist'), { recursive: true })
  // Renamed when complete: a process that starts meanwhile never reads half a module.
  const unfinished = `${output}.${process.pid}`
  const { error, stderr } = await asc.main([
    join(folder, 'index.as.ts'),
    ...['--outFile', unfinished],
    ...['-O3', '--noAssert', '--runtime', 'stub'],
    ...['--enable', 'simd', '--enable', 'threads', '--enable', 'bulk-memory'],
    // The memory is the arena of the rank, up to the 4 GiB that 32-bit addresses reach.
    ...['--importMemory', '--sharedMemory', '--noExportMemory'],
    ...['--initialMemory', '1', '--maximumMemory', '65536'],
  ])
  if (error) {
    process.stderr.write(`${stderr.toString()}${error.message}\n`)
    process.exit(1)
  }
  renameSync(unfinished, output)
}

function modified(path) {
  return statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0
}
