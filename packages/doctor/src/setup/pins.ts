import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { TensorFlowManifest } from '@tsrun/core'
import { packageFolder } from '../package-folder.ts'

/*
 * All downloads of a set-up are pinned: npm packages by the lock file in `pins`, wheels by hashes in
 * `pins`, and the libraries that the npm package downloads by the hashes below. `npm run pins` updates
 * `pins` after a change of the versions below.
 */

/** The last release of TensorFlow.js. Its binding compiles with TensorFlow 2.9 to 2.21. */
export const TFJS_VERSION = '4.22.0'

/** The version of the pinned wheels. */
export const TENSORFLOW_VERSION = '2.21.0'

/** The CPython versions and processors for which Linux wheels of `TENSORFLOW_VERSION` exist. */
export const PINNED_PYTHONS = ['3.10', '3.11', '3.12', '3.13'] as const
export const PINNED_MACHINES = ['x86_64', 'aarch64'] as const

/** The version of the wheel `scipy-openblas32`. */
export const OPENBLAS_VERSION = '0.3.34.481.3'

/**
 * SHA-256 by file name of the libtensorflow archives that the install script of the npm package
 * downloads. Several independent projects recorded the hash for Linux without GPUs, and one project
 * recorded the other two. No hashes were published for the archives of the binding.
 */
export const OFFICIAL_ARCHIVES: Readonly<Record<string, string>> = {
  'libtensorflow-cpu-linux-x86_64-2.9.1.tar.gz':
    '7f510d2546e3db5e10b1d119463689003d587842892ad3c95bca51cf82820173',
  'libtensorflow-gpu-linux-x86_64-2.9.1.tar.gz':
    '20c46f761d5905f592c4eac0812e8e50d9cb439f9440a9391912cf4c02ed8be8',
  'libtensorflow-cpu-darwin-x86_64-2.9.1.tar.gz':
    '56f83d3320ba0f69aaafd6c058645e1b7fbc75fb9a3fc36d6be98de1291ca226',
}

const pins = new URL('src/setup/pins/', packageFolder)

/** The package.json of an installation. `npm run pins` makes the lock file from it. */
export function npmManifest(name: TensorFlowManifest['package']): object {
  return {
    name: 'tsrun-tensorflow',
    private: true,
    dependencies: { [name]: TFJS_VERSION, 'node-api-headers': '^1.5.0' },
    // The version of tar that the package requires has known vulnerabilities.
    overrides: { tar: '^7.5.16' },
  }
}

export function npmLock(name: TensorFlowManifest['package']): string {
  return readFileSync(new URL(`${name.split('/')[1]!}.lock.json`, pins), 'utf8')
}

/** The path of pip's requirements file, which contains hashes. */
export function requirements(name: 'tensorflow-cpu' | 'tensorflow-gpu' | 'openblas'): string {
  return fileURLToPath(new URL(`${name}.txt`, pins))
}
