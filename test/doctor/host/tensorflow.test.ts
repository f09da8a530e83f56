import type { TensorFlowManifest } from '@tsrun/core'
import { BINDING_REVISION, judge, type Facts } from '../../internals/doctor.ts'
import { healthy } from '../support/healthy-host.ts'

const manifest: TensorFlowManifest = {
  ...{ format: 1, package: '@tensorflow/tfjs-node', packageVersion: '4.22.0' },
  ...{ tensorflowVersion: '2.21.0', folder: '/home/x', libraryFolders: [] },
  ...{ devices: ['CPU'], system: 'linux-x64', createdAt: '2026-01-01T00:00:00Z', kernels: true },
  bindingRevision: BINDING_REVISION,
  request: { gpu: false, official: false, wheel: null, python: null },
}

/** What the doctor finds where `tensorflow` is set up, and there are these GPUs. */
function check(tensorflow: Facts['tensorflow'], ...nvidia: string[]) {
  const findings = judge({ ...healthy, tensorflow, gpus: { ...healthy.gpus, nvidia } })
  return findings.filter(({ name }) => name === 'TensorFlow')
}
const setUp = (changes: Partial<TensorFlowManifest> = {}) => ({
  manifest: { ...manifest, ...changes },
})

describe('the doctor, on TensorFlow', () => {
  it('says which TensorFlow is installed', () => {
    expect(check(setUp())).toEqual([
      {
        ...{ name: 'TensorFlow', state: 'ok' },
        found: 'TensorFlow 2.21.0 is set up on CPU (@tensorflow/tfjs-node 4.22.0, in /home/x)',
      },
    ])
    expect(check({ manifest: undefined })).toEqual([])
  })

  it('says how to replace a manifest that cannot be read', () => {
    expect(check({ problem: 'it is no JSON' })).toMatchObject([
      {
        ...{ state: 'note', found: 'it is no JSON' },
        advice: 'npx tsrun setup tensorflow installs it again.',
      },
    ])
  })

  it('advises --gpu if there are GPUs and TensorFlow is installed for the CPU', () => {
    expect(check(setUp(), 'GPU 0: one')).toMatchObject([
      {
        ...{ state: 'note', advice: 'npx tsrun setup tensorflow --gpu' },
        found: expect.stringMatching(/^TensorFlow 2\.21\.0 .*, although there are GPUs$/),
      },
    ])
    const forGpus = setUp({ package: '@tensorflow/tfjs-node-gpu' })
    expect(check(forGpus, 'GPU 0: one')).toMatchObject([{ state: 'ok' }])
  })

  it('says that the kernels did not compile, and which file has the reason', () => {
    const found = expect.stringMatching(
      /, without the kernels of tsrun, .*: small layers are slower$/,
    )
    expect(check(setUp({ kernels: false }))).toMatchObject([
      {
        state: 'note',
        found,
        advice:
          '/home/setup.log says why. --wheel names another TensorFlow; remove /home/x to try again.',
      },
    ])
    // those of --official are without by choice
    const official = setUp({ kernels: false, request: { ...manifest.request, official: true } })
    expect(check(official)).toMatchObject([{ state: 'ok', found }])
  })

  it('says that the kernels of another revision are not used', () => {
    const { bindingRevision, ...older } = manifest
    for (const other of [older, { ...older, bindingRevision: bindingRevision! - 1 }]) {
      expect(check({ manifest: other })).toMatchObject([
        {
          state: 'note',
          found: expect.stringMatching(/, with the kernels of another tsrun, which are not used$/),
          advice: 'npx tsrun setup tensorflow makes those of this one.',
        },
      ])
    }
  })
})
