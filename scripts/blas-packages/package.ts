// What an npm package of OpenBLAS is made of: `@tsrun/blas-linux-x64` and the others.
import { requirements } from '../../packages/doctor/src/setup/pins.ts'

/** A wheel of scipy-openblas32, and for which machines npm installs its package. */
export interface Wheel {
  /** The system, as pip writes it. */
  readonly tag: string
  readonly os: 'darwin' | 'linux' | 'win32'
  readonly cpu: string
  readonly libc?: 'glibc' | 'musl'
  /** Why there is no package of it. */
  readonly unfit?: string
}

/** The wheels that `npm run pins` pins. */
export const wheels: readonly Wheel[] = [
  { tag: 'manylinux_2_28_x86_64', os: 'linux', cpu: 'x64', libc: 'glibc' },
  { tag: 'manylinux_2_28_aarch64', os: 'linux', cpu: 'arm64', libc: 'glibc' },
  { tag: 'manylinux_2_28_i686', os: 'linux', cpu: 'ia32', libc: 'glibc' },
  { tag: 'manylinux_2_28_ppc64le', os: 'linux', cpu: 'ppc64', libc: 'glibc' },
  {
    tag: 'manylinux_2_28_s390x',
    os: 'linux',
    cpu: 's390x',
    libc: 'glibc',
    unfit: 'koffi does not run there',
  },
  { tag: 'manylinux_2_39_riscv64', os: 'linux', cpu: 'riscv64', libc: 'glibc' },
  { tag: 'musllinux_1_2_x86_64', os: 'linux', cpu: 'x64', libc: 'musl' },
  { tag: 'musllinux_1_2_aarch64', os: 'linux', cpu: 'arm64', libc: 'musl' },
  { tag: 'macosx_11_0_arm64', os: 'darwin', cpu: 'arm64' },
  { tag: 'macosx_10_13_x86_64', os: 'darwin', cpu: 'x64' },
  { tag: 'win_amd64', os: 'win32', cpu: 'x64' },
  {
    tag: 'win_arm64',
    os: 'win32',
    cpu: 'arm64',
    unfit: 'its wheel does not contain the licence of OpenBLAS',
  },
  { tag: 'win32', os: 'win32', cpu: 'ia32' },
]

/** The platform of a wheel, for example `linux-x64` or `linux-x64-musl`. */
export function platformOf({ os, cpu, libc }: Wheel): string {
  return `${os}-${cpu}${libc === 'musl' ? '-musl' : ''}`
}

/** The flags for pip that unpack a wheel into a folder. pip refuses files whose hashes are not pinned. */
export function pipArguments({ tag }: Wheel, folder: string): string[] {
  const pinned = ['--require-hashes', '-r', requirements('openblas')]
  return ['--target', folder, '--platform', tag, ...pinned]
}

/** The parts of package.json that all packages of this repository share. */
export interface Shared {
  readonly version: string
  readonly engines: object
  readonly repository?: unknown
  readonly homepage?: unknown
  readonly bugs?: unknown
}

/**
 * Makes the package.json of a wheel.
 *
 * @param openblas - the version of the wheel
 * @param library - the file name of the library
 * @param license - from `licenseOf`
 */
export function manifestOf(
  wheel: Wheel,
  { version, engines, repository, homepage, bugs }: Shared,
  { openblas, library, license }: Record<'openblas' | 'library' | 'license', string>,
) {
  const { os, cpu, libc } = wheel
  const platform = platformOf(wheel)
  return {
    name: `@tsrun/blas-${platform}`,
    version,
    description: `OpenBLAS ${openblas} for the wasm backend of @tsrun/training on ${platform}`,
    license,
    ...{ repository, homepage, bugs },
    engines,
    os: [os],
    cpu: [cpu],
    ...(libc !== undefined && { libc: [libc] }),
    exports: { '.': `./${library}`, './package.json': './package.json' },
  }
}

/** Makes README.md for a package.json, in five lines. */
export function readmeOf({ name, description }: ReturnType<typeof manifestOf>): string {
  return `# ${name}

${description}: the library of the wheel scipy-openblas32, unchanged.

\`@tsrun/training\` finds it when it is installed, tests it, and then multiplies matrices with it. LICENSE.txt has the licences of all that it contains.
`
}

/** What a wheel may contain, as its LICENSE.txt names it, and the SPDX expressions of these licences. */
const contents: Readonly<Record<string, string>> = {
  'OpenBLAS: BSD-3-Clause-Attribution': 'BSD-3-Clause',
  'LAPACK: BSD-3-Clause-Attribution': 'BSD-3-Clause-Open-MPI',
  'GCC runtime library: GPL-3.0-with-GCC-exception': 'GPL-3.0-or-later WITH GCC-exception-3.1',
}

/**
 * Returns the SPDX expression for the LICENSE.txt of a wheel. SPDX has other names for these texts than the
 * wheel.
 *
 * @throws Error if the text names something unknown, or does not contain the licences of OpenBLAS and LAPACK
 */
export function licenseOf(text: string): string {
  if (!/^BSD 2-Clause License$/m.test(text)) throw new Error('the licence of the wheel is unknown')
  const named = text.matchAll(/^Name: (.+)$[^]*?^License: (.+)$/gm)
  const parts = Array.from(named, ([, name, license]) => `${name!}: ${license!}`)
  for (const what of ['OpenBLAS', 'LAPACK']) {
    if (!parts.some((part) => part.startsWith(`${what}:`))) throw new Error(`no licence of ${what}`)
  }
  const licenses = parts.map((part) => {
    const license = contents[part]
    if (license === undefined) throw new Error(`${part} is unknown`)
    return license
  })
  return ['BSD-2-Clause', ...licenses].join(' AND ')
}
