import { readFileSync } from 'node:fs'
import {
  compareDownloads,
  npmLock,
  npmManifest,
  OFFICIAL_ARCHIVES,
  OPENBLAS_VERSION,
  PINNED_MACHINES,
  PINNED_PYTHONS,
  requirements,
  TENSORFLOW_VERSION,
} from '../../internals/doctor.ts'

interface Lock {
  readonly packages: Record<string, { readonly version?: string; readonly integrity?: string }>
}

describe('what a set-up downloads', () => {
  it.each(['@tensorflow/tfjs-node', '@tensorflow/tfjs-node-gpu'] as const)(
    'from npm is pinned by the lock file of %s',
    (name) => {
      const { packages } = JSON.parse(npmLock(name)) as Lock
      const { '': own, ...others } = packages
      const { dependencies } = npmManifest(name) as { dependencies: object }
      expect(own).toMatchObject({ dependencies })
      expect(Object.keys(others)).toContain(`node_modules/${name}`)
      for (const { version, integrity } of Object.values(others)) {
        expect([version, integrity]).toEqual([
          expect.stringMatching(/^\d+\.\d+\.\d+/),
          expect.stringMatching(/^sha512-/),
        ])
      }
      expect(Number(others['node_modules/tar']!.version!.split('.')[0])).toBeGreaterThanOrEqual(7)
    },
  )

  it.each([false, true])('from pip is pinned by hashes, for GPUs: %s', (gpu) => {
    const text = readFileSync(requirements(`tensorflow-${gpu ? 'gpu' : 'cpu'}`), 'utf8')
    const entries = text
      .split(/\n(?=\S)/)
      .filter((entry) => !entry.startsWith('#'))
      .map((entry) => ({
        what: /^[a-z\d-]+==[\d.]+/.exec(entry)?.[0],
        hashes: entry.match(/--hash=sha256:[0-9a-f]{64}\b/g)?.length ?? 0,
      }))
    expect(entries.every(({ what, hashes }) => what !== undefined && hashes > 0)).toBe(true)
    const wheels = entries.filter(({ what }) => what!.startsWith('tensorflow'))
    // one for each Python and processor
    const [pythons, machines] = [PINNED_PYTHONS.length, PINNED_MACHINES.length]
    const plain = { what: `tensorflow==${TENSORFLOW_VERSION}`, hashes: pythons * machines }
    const cpu = { what: `tensorflow-cpu==${TENSORFLOW_VERSION}`, hashes: pythons }
    expect(wheels).toEqual(gpu ? [plain] : [cpu, { ...plain, hashes: pythons }])
    expect(entries.length - wheels.length).toBe(gpu ? 12 : 0)
  })

  it('by setup blas is pinned by the hashes of all wheels of one version', () => {
    const [about, requirement, ...hashes] = readFileSync(requirements('openblas'), 'utf8')
      .trimEnd()
      .split('\n')
    expect(about).toContain(`${hashes.length} systems`)
    expect(requirement).toBe(`scipy-openblas32==${OPENBLAS_VERSION} \\`)
    expect(new Set(hashes).size).toBe(hashes.length)
    for (const line of hashes) expect(line).toMatch(/^ {4}--hash=sha256:[0-9a-f]{64}( \\)?$/)
  })

  it('by the install script of the npm package is compared with a pinned hash', () => {
    const [name, known] = Object.entries(OFFICIAL_ARCHIVES)[0]!
    const library = { url: `https://example.org/a/${name}`, sha256: known }
    const binding = { url: 'https://example.org/b.tar.gz', sha256: 'f'.repeat(64) }
    const compare =
      (...downloads: Parameters<typeof compareDownloads>[0]) =>
      () => {
        compareDownloads(downloads)
      }
    expect(compare(library, binding)).not.toThrow()
    expect(compareDownloads([library, binding])).toEqual([binding])
    expect(compare({ ...library, sha256: 'e'.repeat(64) })).toThrow(`and not ${known}`)
    expect(compare()).toThrow('downloaded nothing')
  })
})
