import { readdirSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { fileURLToPath } from 'node:url'
import {
  object,
  parseJson,
  readBlasManifest,
  text,
  thisSystem,
  type BlasManifest,
} from '@tsrun/core'
import { packageFolder } from '../package-folder.ts'
import { OPENBLAS_VERSION, requirements } from './pins.ts'
import { problemOf } from './proof.ts'
import type { Component } from './setup.ts'
import {
  findPython,
  installWithPip,
  runTool,
  setupError,
  testOptions,
  type ToolContext,
} from './tool.ts'

/** The advice for installing a BLAS without `tsrun setup`. */
export const systemAdvice =
  'install the OpenBLAS of your system, which tsrun finds by its file name (Debian and Ubuntu: apt-get install ' +
  'libopenblas0-pthread)'

/** OpenBLAS of the wheel scipy-openblas32, for `tsrun setup blas`. */
export const blasComponent: Component = {
  name: 'blas',
  title: 'OpenBLAS',
  find(env) {
    const manifest = readBlasManifest(env)
    return (
      manifest && {
        folder: resolve(manifest.library, '../../..'),
        system: manifest.system,
        sentence: describe(manifest),
        async test(context) {
          const proof = await proveBlas(context, manifest.library)
          if (typeof proof === 'string') return proof
          const isCurrent = manifest.version === OPENBLAS_VERSION
          return { sentence: describe({ ...manifest, ...proof }), isUsable: true, isCurrent }
        },
      }
    )
  },
  async build(context, folder) {
    const { say, log, title } = context
    const python = await findPython(context, null, {
      modules: ['pip'],
      advice: `install Python 3 with pip (Debian and Ubuntu: apt-get install python3-pip), or ${systemAdvice}`,
    })
    say(`1/3 found Python ${python.version} with pip`)
    const what = `${title} ${OPENBLAS_VERSION}`
    say(`2/3 installing ${what} with pip`)
    await installWithPip(context, python.command, {
      what,
      args: ['--target', folder, '--require-hashes', '-r', requirements('openblas')],
      noWheel:
        `there is no wheel of it for ${thisSystem} with this C library (Linux needs glibc 2.27 or musl ` +
        `1.2), or pip is older than 20.3: update pip, or ${systemAdvice}`,
    })
    say('3/3 testing the result in a new process')
    const library = libraryIn(folder)
    const proof = await proveBlas(context, library)
    if (typeof proof === 'string') {
      throw setupError(`the result does not work (${proof}): ${systemAdvice}; see ${log}`, title)
    }
    const manifest: BlasManifest = {
      format: 1,
      library,
      version: OPENBLAS_VERSION,
      ...proof,
      system: thisSystem,
      createdAt: new Date().toISOString(),
    }
    return [manifest, `${describe(manifest)}; the backend wasm uses it from now on`]
  },
}

/** Finds the library of an unpacked wheel. */
export function libraryIn(folder: string): string {
  const libraries = join(folder, 'scipy_openblas32/lib')
  const [name = ''] = readdirSync(libraries).filter((file) => /\.(so|dylib|dll)$/.test(file))
  return join(libraries, name)
}

function describe({ version, kernels = 'unknown', library }: BlasManifest): string {
  return `OpenBLAS ${version} is set up (kernels ${kernels}, ${library})`
}

/** Time limit of a test in milliseconds. */
const LIMIT = 60_000
const program = fileURLToPath(new URL('dist/blas-proof.js', packageFolder))
const proven = object({ kernels: text.optional() })

/** Tests a BLAS in a new process against a simple loop. @returns the kernels, or the problem */
export async function proveBlas(
  context: ToolContext,
  library: string,
): Promise<Pick<BlasManifest, 'kernels'> | string> {
  const env = { NODE_OPTIONS: testOptions(context) }
  const output = await runTool(context, process.execPath, [program, library], { limit: LIMIT, env })
  const proof = output.ok ? parseJson(output.stdout, proven) : undefined
  return proof ?? problemOf(output)
}
