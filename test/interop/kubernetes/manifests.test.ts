import { execFileSync, spawnSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseAllDocuments } from 'yaml'
import {
  flagTable,
  toJobOptions,
  completeSettings,
  variablesOf,
  type JobOptions,
} from '../../internals/launcher/args.ts'
import { needing } from '../../needs.ts'

const folder = fileURLToPath(new URL('../../../deploy/', import.meta.url))
const files = readdirSync(folder).filter((name) => name.endsWith('.yaml'))

interface Container {
  readonly name: string
  readonly command: readonly string[]
  readonly env: readonly { readonly name: string; readonly value?: string }[]
}

interface Manifest {
  readonly apiVersion: string
  readonly kind: string
  readonly [key: string]: unknown
}

function read(file: string): Manifest[] {
  const documents = parseAllDocuments(readFileSync(folder + file, 'utf8'))
  return documents.map((document) => document.toJS() as Manifest)
}

/** All values of a key, however deep. */
function find<T>(value: unknown, key: string): T[] {
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([name, inner]) =>
    name === key ? [inner as T] : find<T>(inner, key),
  )
}

/** What the platform gives the pod with this index beside the variables of the manifest. */
const platforms: Record<string, (index: string) => Record<string, string>> = {
  'job.yaml': (index) => ({ JOB_COMPLETION_INDEX: index }),
  'jobset.yaml': (index) => ({ JOB_COMPLETION_INDEX: index }),
  // The runtime takes the numbers from the TrainJob, and the name of the first pod from its JobSet.
  'trainjob.yaml': (index) => ({
    JOB_COMPLETION_INDEX: index,
    PET_NNODES: '2',
    PET_NPROC_PER_NODE: '4',
    PET_NODE_RANK: index,
    PET_MASTER_ADDR: 'train-node-0-0.train',
    PET_MASTER_PORT: '29500',
  }),
  'volcano.yaml': (index) => ({
    ...{ VK_TASK_INDEX: index, VC_TASK_INDEX: index },
    ...{ VC_NODE_NUM: '2', VC_NODE_HOSTS: 'train-node-0.train,train-node-1.train' },
  }),
}

/** The options of the launcher in the pod with this index. */
function optionsIn(file: string, index: string): JobOptions {
  const [container] = find<Container[]>(read(file), 'containers')[0]!
  const own = container!.env.map(({ name, value }) => [name, value ?? ''])
  const env = { ...platforms[file]!(index), ...(Object.fromEntries(own) as Record<string, string>) }
  const machine = { cores: 4, gpus: () => 0, usesGpus: () => false }
  return toJobOptions(completeSettings({}, env), container!.command.slice(1), machine)
}

it('each Kubernetes manifest has a platform to test it on', () => {
  expect(Object.keys(platforms).sort()).toEqual([...files].sort())
})

describe.each([
  ['job.yaml', 'train-0.train', 29_500],
  ['jobset.yaml', 'train-node-0-0.train', 29_500],
  ['trainjob.yaml', 'train-node-0-0.train', 29_500],
  ['volcano.yaml', 'train-node-0.train', 29_500],
])('deploy/%s', (file, host, port) => {
  it.each(['0', '1'])('gives pod %s the node rank of its index', (index) => {
    expect(optionsIn(file, index)).toMatchObject({
      placement: { nnodes: 2, nproc: 4, nodeRank: Number(index) },
      rendezvous: { host, port },
    })
  })

  it('gives pods the token, shared memory, and variables that tsrun knows', () => {
    const known = new Set([...flagTable.flatMap(variablesOf), 'TSRUN_TOKEN'])
    const [container] = find<Container[]>(read(file), 'containers')[0]!
    expect(container!.command[0]).toBe('tsrun')
    const names = container!.env.map(({ name }) => name)
    expect(names).toContain('TSRUN_TOKEN')
    expect(names.filter((name) => !known.has(name))).toEqual([])
    expect(container).toMatchObject({ volumeMounts: [{ name: 'shm', mountPath: '/dev/shm' }] })
    expect(find(read(file), 'volumes')).toEqual([[{ name: 'shm', emptyDir: { medium: 'Memory' } }]])
  })
})

const candidates = [process.env['TSRUN_BENCH_PYTHON'] ?? '', 'python3'].filter(
  (name) => name !== '',
)
const python = candidates.find(
  (name) => spawnSync(name, ['-c', 'import kubeflow_trainer_api']).status === 0,
)

/** The problems that the models find in each object. */
function validate(manifests: readonly object[]): string[][] {
  const program = fileURLToPath(new URL('validate.py', import.meta.url))
  const input = JSON.stringify(manifests)
  return JSON.parse(execFileSync(python!, [program], { input, encoding: 'utf8' })) as string[][]
}

const { describe: describeWithPython } = needing(
  python !== undefined,
  'Python with kubeflow-trainer-api',
)

describeWithPython('the models of Kubernetes, JobSet and Kubeflow Trainer', () => {
  // Of Volcano's job they know the template of the pods only.
  const known = files.flatMap((file) =>
    file === 'volcano.yaml'
      ? find<object>(read(file), 'template').map((template) => ({
          ...{ apiVersion: 'v1', kind: 'PodTemplate' },
          template,
        }))
      : read(file),
  )

  it('accept the manifests', () => {
    expect(known).toHaveLength(6)
    expect(validate(known)).toEqual(known.map(() => []))
  })

  it('refuse an unknown key, and a value of another type', () => {
    const text = JSON.stringify(known)
    const misspelt = text.replaceAll('"terminationGracePeriodSeconds"', '"gracePeriod"')
    const wrong = text.replaceAll('"publishNotReadyAddresses":true', '"publishNotReadyAddresses":7')
    const problems = validate([misspelt, wrong].flatMap((each) => JSON.parse(each) as object[]))
    const ofMisspelt = problems.slice(0, known.length).flat()
    expect(ofMisspelt).toHaveLength(4)
    for (const problem of ofMisspelt) expect(problem).toMatch(/^unknown: .*\.gracePeriod$/)
    expect(problems.slice(known.length).flat()).toHaveLength(2)
  })
})
