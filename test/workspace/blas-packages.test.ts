import { readFileSync } from 'node:fs'
import { thisSystem } from '@tsrun/core'
import {
  licenseOf,
  manifestOf,
  pipArguments,
  platformOf,
  readmeOf,
  wheels,
} from '../../scripts/blas-packages/package.ts'
import { OPENBLAS_VERSION, requirements } from '../internals/doctor.ts'

const shared = JSON.parse(
  readFileSync(new URL('../../packages/training/package.json', import.meta.url), 'utf8'),
) as Parameters<typeof manifestOf>[1]
const facts = { openblas: OPENBLAS_VERSION, library: 'libscipy_openblas.so', license: 'MIT' }
const wheelFor = (platform: string) => wheels.find((wheel) => platformOf(wheel) === platform)!

describe('an npm package of OpenBLAS', () => {
  it('is made of a wheel whose hash is pinned', () => {
    const pins = readFileSync(requirements('openblas'), 'utf8')
    expect(pins.match(/--hash=/g)).toHaveLength(wheels.length)
    expect(new Set(wheels.map(platformOf)).size).toBe(wheels.length)
    expect(pipArguments(wheelFor('darwin-arm64'), '/wheel')).toEqual([
      ...['--target', '/wheel', '--platform', 'macosx_11_0_arm64'],
      ...['--require-hashes', '-r', requirements('openblas')],
    ])
  })

  it('is installed only on its system, and says which OpenBLAS it contains', () => {
    const manifest = manifestOf(wheelFor('linux-arm64-musl'), shared, facts)
    expect(JSON.parse(JSON.stringify(manifest))).toEqual({
      name: '@tsrun/blas-linux-arm64-musl',
      version: shared.version,
      description: `OpenBLAS ${OPENBLAS_VERSION} for the wasm backend of @tsrun/training on linux-arm64-musl`,
      license: 'MIT',
      repository: shared.repository,
      homepage: shared.homepage,
      bugs: shared.bugs,
      engines: shared.engines,
      ...{ os: ['linux'], cpu: ['arm64'], libc: ['musl'] },
      exports: { '.': './libscipy_openblas.so', './package.json': './package.json' },
    })
    expect(manifestOf(wheelFor('darwin-x64'), shared, facts)).not.toHaveProperty('libc')
    const repository = { type: 'git', url: 'git+https://example.org/tsrun.git' }
    const published = manifestOf(wheelFor('win32-x64'), { ...shared, repository }, facts)
    expect(published.repository).toEqual(repository)
    expect(readmeOf(manifest).split('\n')).toHaveLength(6)
    expect(wheels.map(platformOf)).toContain(thisSystem)
  })

  const openblas = 'Name: OpenBLAS\nFiles: a.so\nLicense: BSD-3-Clause-Attribution\n  Copyright\n'
  const lapack = openblas.replace('OpenBLAS', 'LAPACK')
  const fortran = 'Name: GCC runtime library\nLicense: GPL-3.0-with-GCC-exception\n'

  it('has the licences of all that the wheel contains', () => {
    const text = ['BSD 2-Clause License', openblas, lapack, fortran].join('\n\n')
    const license =
      'BSD-2-Clause AND BSD-3-Clause AND BSD-3-Clause-Open-MPI AND GPL-3.0-or-later WITH GCC-exception-3.1'
    expect(licenseOf(text)).toBe(license)
    expect(licenseOf(text.replaceAll('\n', '\r\n'))).toBe(license)
  })

  it.each([
    ['BSD 2-Clause License\n', 'no licence of OpenBLAS'],
    [`BSD 2-Clause License\n${openblas}`, 'no licence of LAPACK'],
    [`BSD 2-Clause License\n${openblas}${lapack}${fortran.replace('GCC', 'Other')}`, 'is unknown'],
    [`MIT License\n${openblas}${lapack}`, 'the licence of the wheel is unknown'],
  ])('is not made if its licences are missing or unknown: %j', (text, problem) => {
    expect(() => licenseOf(text)).toThrow(problem)
  })
})
