import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { cleanEnvironment, until } from '../../launcher/support/tsrun.ts'
import { needing } from '../../needs.ts'

const root = fileURLToPath(new URL('../../../', import.meta.url))
const candidates = [process.env['TSRUN_BENCH_PYTHON'] ?? '', 'python3'].filter(
  (name) => name !== '',
)
const python = candidates.find((name) => spawnSync(name, ['-c', 'import ray']).status === 0)
const { describe: describeOnRay } = needing(python !== undefined, 'Ray')

describeOnRay('deploy/on_ray.py', () => {
  let cluster: ChildProcess
  let address = ''
  beforeAll(async () => {
    const script = fileURLToPath(new URL('cluster.py', import.meta.url))
    cluster = spawn(python!, [script], { stdio: ['pipe', 'pipe', 'ignore'] })
    cluster.stdout!.setEncoding('utf8').on('data', (text: string) => (address += text))
    await until(() => /:\d+\n/.test(address), 'Ray has started', 60_000)
  })
  afterAll(async () => {
    const ended = once(cluster, 'exit')
    cluster.stdin!.end()
    await ended
  })

  const run = (...script: string[]): { status: number | null; output: string } => {
    const args = ['deploy/on_ray.py', '--nodes', '2', '--nproc', '1', ...script]
    const env = { ...cleanEnvironment(), RAY_ADDRESS: address.trim() }
    const options = { cwd: root, env, encoding: 'utf8', timeout: 90_000 } as const
    const { status, stdout, stderr } = spawnSync(python!, args, options)
    return { status, output: stdout + stderr }
  }

  it('runs a job on two nodes', () => {
    const { status, output } = run('test/fixtures/launcher/hello.mjs')
    expect({ status, output }).toEqual({ status: 0, output })
    expect(output).toContain('hello from rank 0 of 2')
    expect(output).toContain('hello from rank 1 of 2')
  })

  it('ends with the exit code of a rank that fails', () => {
    const { status, output } = run('test/fixtures/launcher/die.mjs', 'exit')
    expect({ status, output }).toEqual({ status: 3, output })
    expect(output).toContain('first cause  rank 1 of 2')
  })
})
