import { execFileSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { parse } from 'yaml'
import {
  flagTable,
  toJobOptions,
  completeSettings,
  variablesOf,
  type JobOptions,
} from '../../internals/launcher/args.ts'
import { needing } from '../../needs.ts'
import { build, find, folder, hasKubectl, overlays, podOf, templatesOf } from './overlays.ts'

const { describe: describeBuilt } = needing(hasKubectl, 'kubectl')

/** What the platform gives the pod with this index beside the variables of the manifest. */
const platforms: Record<string, (overlay: string, index: string) => Record<string, string>> = {
  job: (_, index) => ({ JOB_COMPLETION_INDEX: index }),
  jobset: (_, index) => ({ JOB_COMPLETION_INDEX: index }),
  // The runtime takes the numbers from the TrainJob, and the name of the first pod from its JobSet.
  trainjob: (overlay, index) => {
    const [trainer] = find<{ numNodes: number; numProcPerNode: number | string }>(
      build(overlay),
      'trainer',
    )
    return {
      JOB_COMPLETION_INDEX: index,
      PET_NNODES: String(trainer!.numNodes),
      PET_NPROC_PER_NODE: String(trainer!.numProcPerNode),
      PET_NODE_RANK: index,
      PET_MASTER_ADDR: 'train-node-0-0.train',
      PET_MASTER_PORT: '29500',
    }
  },
  volcano: (_, index) => ({
    ...{ VK_TASK_INDEX: index, VC_TASK_INDEX: index },
    ...{ VC_NODE_NUM: '2', VC_NODE_HOSTS: 'train-node-0.train,train-node-1.train' },
  }),
}

/** The options of the launcher in the pod with this index. */
function optionsIn(overlay: string, index: string): JobOptions {
  const [container] = podOf(overlay).containers
  const own = Object.fromEntries(container.env.map(({ name, value = '' }) => [name, value]))
  const env = { ...platforms[overlay.split('-')[0]!]!(overlay, index), ...own }
  const machine = { cores: 4, gpus: () => 2, usesGpus: () => true }
  const words = container.command.slice(1)
  const nnodes = words[0] === '--nnodes' ? words[1] : undefined
  const flags = nnodes === undefined ? {} : { nnodes }
  const script = nnodes === undefined ? words : words.slice(2)
  return toJobOptions(completeSettings(flags, env), script, machine)
}

const version = (
  JSON.parse(readFileSync(`${folder}../../package.json`, 'utf8')) as { version: string }
).version

it('there is an overlay for each platform, with and without GPUs, and one for an elastic job', () => {
  const names = Object.keys(platforms).flatMap((platform) => [platform, `${platform}-gpu`])
  expect(overlays).toEqual([...names, 'job-elastic'].sort())
})

it('every kustomization names what exists, and every component belongs to an overlay', () => {
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter(
    (path) => basename(path) === 'kustomization.yaml',
  )
  const named = files.flatMap((file) => {
    const { resources = [], components = [] } = parse(
      readFileSync(join(folder, file), 'utf8'),
    ) as Record<string, string[] | undefined>
    return [...resources, ...components].map((path) => join(dirname(file), path))
  })
  expect(named.filter((path) => !existsSync(join(folder, path)))).toEqual([])
  const unused = files.map((file) => dirname(file)).filter((path) => !named.includes(path))
  expect(unused.sort()).toEqual(overlays.map((overlay) => `overlays/${overlay}`))
})

it('one file says where the images are, in the version of this repository', () => {
  const files = execFileSync('git', [
    'grep',
    '--files-with-matches',
    'registry.example.com',
    '--',
    folder,
  ])
  expect(files.toString().trim()).toMatch(/^\S*components\/image\/kustomization\.yaml$/)
  const text = readFileSync(`${folder}components/image/kustomization.yaml`, 'utf8')
  expect(text).toContain(`newTag: ${version} }`)
  expect(text).toContain(`newTag: ${version}-gpu }`)
})

describeBuilt.each([
  ['job', 'train-0.train', 4],
  ['job-gpu', 'train-0.train', 2],
  ['jobset', 'train-node-0-0.train', 4],
  ['jobset-gpu', 'train-node-0-0.train', 2],
  ['trainjob', 'train-node-0-0.train', 4],
  ['trainjob-gpu', 'train-node-0-0.train', 2],
  ['volcano', 'train-node-0.train', 4],
  ['volcano-gpu', 'train-node-0.train', 2],
])('two nodes of the overlay %s', (overlay, host, nproc) => {
  it.each(['0', '1'])('pod %s has the node rank of its index', (index) => {
    expect(optionsIn(overlay, index)).toMatchObject({
      placement: { nnodes: 2, nproc, nodeRank: Number(index) },
      rendezvous: { host, port: 29_500 },
    })
  })

  it('have an image of this version, and GPUs if they use them', () => {
    const [{ image, resources }] = podOf(overlay).containers
    const isGpu = overlay.endsWith('-gpu')
    expect(image).toBe(`registry.example.com/tsrun:${version}${isGpu ? '-gpu' : ''}`)
    expect(resources.limits['nvidia.com/gpu']).toBe(isGpu ? 2 : undefined)
  })
})

describeBuilt('the overlay job-elastic', () => {
  it('has as many pods as nodes may join, and ends with node 0', () => {
    expect(optionsIn('job-elastic', '3')).toMatchObject({
      placement: { minNodes: 2, nnodes: 4, nodeRank: undefined },
    })
    const job = build('job-elastic').find(({ kind }) => kind === 'Job')
    expect(job).toMatchObject({
      spec: {
        ...{ completions: 4, parallelism: 4 },
        successPolicy: { rules: [{ succeededIndexes: '0' }] },
      },
    })
  })
})

describeBuilt.each(overlays)('the pods of the overlay %s', (overlay) => {
  it('meet the restricted pod security standard, and cannot change their image', () => {
    const pod = podOf(overlay)
    expect(pod).toMatchObject({
      automountServiceAccountToken: false,
      securityContext: {
        ...{ runAsNonRoot: true, runAsUser: 1000, fsGroup: 1000 },
        seccompProfile: { type: 'RuntimeDefault' },
      },
    })
    expect(pod.containers[0].securityContext).toEqual({
      ...{ allowPrivilegeEscalation: false, readOnlyRootFilesystem: true },
      capabilities: { drop: ['ALL'] },
    })
  })

  it('have a volume for each folder that tsrun writes to, with a limit in memory', () => {
    const { volumes, containers } = podOf(overlay)
    const { volumeMounts } = containers[0]
    expect(volumeMounts.map(({ mountPath }) => mountPath).toSorted()).toEqual([
      ...['/dev/shm', '/run/tsrun', '/tmp', '/tsrun/checkpoints', '/tsrun/logs'],
    ])
    expect(volumeMounts.map(({ name }) => name)).toEqual(volumes.map(({ name }) => name))
    expect(volumes.find(({ name }) => name === 'shm')).toEqual({
      name: 'shm',
      emptyDir: { medium: 'Memory', sizeLimit: '1Gi' },
    })
    const claims = find<string>(volumes, 'claimName')
    const made = build(overlay).filter(({ kind }) => kind === 'PersistentVolumeClaim')
    expect(made.map(({ metadata }) => metadata.name).toSorted()).toEqual(claims.toSorted())
  })

  it('get a token, and only variables that tsrun knows', () => {
    const known = new Set([...flagTable.flatMap(variablesOf), 'TSRUN_RUNS_DIR'])
    const [{ name, command, env }] = podOf(overlay).containers
    expect([name, command[0]]).toEqual(['node', 'tsrun'])
    const names = env.map((variable) => variable.name)
    expect(names).toContain('TSRUN_TOKEN_FILE')
    expect(names.filter((each) => !known.has(each))).toEqual([])
    // 0440: tsrun refuses a file that others can read.
    expect(find(podOf(overlay).volumes, 'defaultMode')).toEqual([0o440])
  })

  it('have less grace in tsrun than in the cluster', () => {
    const { restart } = optionsIn(overlay, '0')
    expect(restart.grace).toBeLessThan(1000 * podOf(overlay).terminationGracePeriodSeconds)
  })

  it('are probed at the metrics of the launcher', () => {
    const { output } = optionsIn(overlay, '0')
    expect(output.metrics).toMatchObject({ host: '0.0.0.0', port: 9400 })
    const probe = { httpGet: { path: '/metrics', port: 'metrics' } }
    expect(podOf(overlay).containers[0]).toMatchObject({
      ...{ startupProbe: probe, readinessProbe: probe, livenessProbe: probe },
      ports: [{ name: 'metrics', containerPort: 9400 }],
    })
  })

  it('are selected by the service, the network policy and the spread', () => {
    const labels = { 'app.kubernetes.io/name': 'tsrun', 'app.kubernetes.io/instance': 'train' }
    const [template] = templatesOf(overlay)
    expect(template!.metadata).toMatchObject({ labels })
    const own = { 'app.kubernetes.io/instance': 'train' }
    for (const selector of find<object>(build(overlay), 'podSelector')) {
      expect(selector).toEqual({ matchLabels: own })
    }
    for (const selector of find<object>(build(overlay), 'labelSelector')) {
      expect(selector).toEqual({ matchLabels: own })
    }
    const services = build(overlay).filter(({ kind }) => kind === 'Service')
    for (const { spec } of services) expect(spec).toMatchObject({ selector: own })
    expect(services).toHaveLength(overlay.startsWith('job-') || overlay === 'job' ? 1 : 0)
  })

  it('start again after what a retry may cure, and not after an error of the script', () => {
    const objects = build(overlay)
    if (overlay.startsWith('volcano')) {
      const [policies] = find<{ exitCode?: number; event?: string; action: string }[]>(
        objects,
        'policies',
      )
      const action = (code: number, event: string): string =>
        policies!.find((policy) => policy.exitCode === code || policy.event === event)!.action
      expect([1, 2, 3].map((code) => action(code, 'PodFailed'))).toEqual(Array(3).fill('AbortJob'))
      expect([75, 137, 143].map((code) => action(code, 'PodFailed'))).toEqual(
        Array(3).fill('RestartJob'),
      )
      expect(action(0, 'PodEvicted')).toBe('RestartJob')
      return
    }
    expect(find(objects, 'podFailurePolicy')).toEqual([
      {
        rules: [
          { action: 'Ignore', onPodConditions: [{ type: 'DisruptionTarget', status: 'True' }] },
          {
            action: 'FailJob',
            onExitCodes: { containerName: 'node', operator: 'NotIn', values: [75, 137, 143] },
          },
        ],
      },
    ])
    if (/^(jobset|trainjob)/.test(overlay)) {
      expect(find(objects, 'failurePolicy')).toEqual([
        {
          maxRestarts: 3,
          rules: [
            { name: 'final', action: 'FailJobSet', onJobFailureReasons: ['PodFailurePolicy'] },
          ],
        },
      ])
    }
  })

  it('end at a deadline, and are removed a day after their end', () => {
    expect(find(build(overlay), 'activeDeadlineSeconds')).toEqual([7 * 24 * 3600])
    expect(find(build(overlay), 'ttlSecondsAfterFinished')).toEqual([24 * 3600])
  })
})
