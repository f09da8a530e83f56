import { execFileSync } from 'node:child_process'

const candidates = [process.env['TSRUN_BENCH_PYTHON'] ?? '', 'python3'].filter(
  (name) => name !== '',
)

/** A Python that has safetensors and numpy; undefined where there is none. */
export const python = candidates.find((name) => {
  try {
    execFileSync(name, ['-c', 'import numpy, safetensors.numpy'], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
})

/** What a program prints, as JSON. */
export function runPython(program: string, ...args: string[]): unknown {
  const output = execFileSync(python!, ['-c', program, ...args], { encoding: 'utf8' })
  return JSON.parse(output)
}
