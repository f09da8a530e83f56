import { execFileSync, spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { needing } from '../../needs.ts'
import { build, hasKubectl, overlays, templatesOf } from './overlays.ts'

const candidates = [process.env['TSRUN_BENCH_PYTHON'] ?? '', 'python3'].filter(
  (name) => name !== '',
)
const python = candidates.find(
  (name) =>
    spawnSync(name, ['-c', 'import kubeflow_trainer_api, kubernetes_validate']).status === 0,
)

/** The problems that the schemas of two versions of Kubernetes find in each object. */
function validate(objects: readonly object[]): string[][] {
  const program = fileURLToPath(new URL('validate.py', import.meta.url))
  const input = JSON.stringify(objects)
  const options = { input, encoding: 'utf8', maxBuffer: 2 ** 26 } as const
  return JSON.parse(execFileSync(python!, [program], options)) as string[][]
}

const { describe: describeWithPython } = needing(
  python !== undefined && hasKubectl,
  'kubectl, and Python with kubernetes-validate and kubeflow-trainer-api',
)

describeWithPython('the schemas of Kubernetes, JobSet and Kubeflow Trainer', () => {
  /** Of Volcano's job they know the template of the pods only. */
  const known = (overlay: string): object[] => [
    ...build(overlay).filter(({ apiVersion }) => apiVersion !== 'batch.volcano.sh/v1alpha1'),
    ...templatesOf(overlay).map((template) => ({
      ...{ apiVersion: 'v1', kind: 'PodTemplate', metadata: { name: overlay } },
      template,
    })),
  ]

  it('accept the objects of each overlay', () => {
    const objects = overlays.flatMap(known)
    expect(objects.length).toBeGreaterThan(4 * overlays.length)
    expect(validate(objects).flat()).toEqual([])
  })

  it('refuse an unknown key, and a value of another type', () => {
    const objects = known('jobset')
    const text = JSON.stringify(objects)
    const misspelt = text.replaceAll('"terminationGracePeriodSeconds"', '"gracePeriod"')
    const wrong = text.replaceAll('"runAsUser":1000', '"runAsUser":"node"')
    for (const changed of [misspelt, wrong]) {
      const problems = validate(JSON.parse(changed) as object[])
      // The job set and its template.
      expect(problems.filter((found) => found.length > 0)).toHaveLength(2)
    }
  })
})
