import { execFileSync, spawnSync } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseAllDocuments } from 'yaml'

export const folder = fileURLToPath(new URL('../../../deploy/kubernetes/', import.meta.url))
export const overlays = readdirSync(`${folder}overlays`).sort()

export const hasKubectl =
  spawnSync('kubectl', ['kustomize', '--help'], { stdio: 'ignore' }).status === 0

export interface Container {
  readonly name: string
  readonly image: string
  readonly command: readonly string[]
  readonly env: readonly { readonly name: string; readonly value?: string }[]
  readonly resources: Readonly<Record<'requests' | 'limits', Record<string, unknown>>>
  readonly securityContext: object
  readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string }[]
  readonly livenessProbe: object
}

export interface Pod {
  readonly containers: readonly [Container]
  readonly volumes: readonly { readonly name: string; readonly emptyDir?: object }[]
  readonly terminationGracePeriodSeconds: number
  readonly [key: string]: unknown
}

export interface Manifest {
  readonly apiVersion: string
  readonly kind: string
  readonly metadata: { readonly name: string }
  readonly [key: string]: unknown
}

const built = new Map<string, Manifest[]>()

/** The objects of an overlay, as `kubectl apply -k` sends them. */
export function build(overlay: string): Manifest[] {
  const known = built.get(overlay)
  if (known !== undefined) return known
  const text = execFileSync('kubectl', ['kustomize', `${folder}overlays/${overlay}`], {
    encoding: 'utf8',
  })
  const objects = parseAllDocuments(text).map((document) => document.toJS() as Manifest)
  built.set(overlay, objects)
  return objects
}

/** All values of a key, however deep. */
export function find<T>(value: unknown, key: string): T[] {
  if (typeof value !== 'object' || value === null) return []
  return Object.entries(value).flatMap(([name, inner]) =>
    name === key ? [inner as T] : find<T>(inner, key),
  )
}

interface Template {
  readonly metadata: object
  readonly spec: Pod
}

/** The templates of pods in the objects of an overlay. */
export function templatesOf(overlay: string): Template[] {
  return podTemplatesIn(build(overlay))
}

function podTemplatesIn(value: unknown): Template[] {
  // In a job set, the template of a job contains that of its pods.
  return find<Template>(value, 'template').flatMap((template) =>
    'containers' in template.spec ? [template] : podTemplatesIn(template),
  )
}

/** The only template. */
export function podOf(overlay: string): Pod {
  const [template, ...others] = templatesOf(overlay)
  if (template === undefined || others.length > 0) throw new Error(`${overlay}: not one template`)
  return template.spec
}
