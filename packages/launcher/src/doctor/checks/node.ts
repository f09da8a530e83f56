import type { Facts } from '../facts.ts'
import type { Finding } from '../finding.ts'

/** Oldest Node that tsrun runs on. */
const OLDEST = [20, 19] as const

export function checkNode({ node }: Facts): Finding[] {
  const found = `${node.version} on ${node.system}`
  const [major = 0, minor = 0] = node.version.replace(/^v/, '').split('.').map(Number)
  if (major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1])) {
    const advice = `Install Node ${OLDEST.join('.')} or later.`
    return [{ name: 'Node', state: 'problem', found, advice }]
  }
  if (!node.system.startsWith('linux')) {
    const advice = 'On Linux ranks share memory, and libc sockets and the inline engine are there.'
    return [{ name: 'Node', state: 'note', found, advice }]
  }
  return [{ name: 'Node', state: 'ok', found }]
}

export function checkTypeScript({ node }: Facts): Finding[] {
  const name = 'TypeScript'
  if (Boolean(node.typescript))
    return [{ name, state: 'ok', found: 'Node strips the types itself' }]
  if (node.tsx !== undefined) return [{ name, state: 'ok', found: 'through tsx' }]
  const advice = 'npm install --save-dev tsx, or use Node 22.18 or later.'
  return [{ name, state: 'note', found: 'only JavaScript runs', advice }]
}

/** Since npm 12, and before with ignore-scripts, dependencies are installed without their scripts. */
export function checkInstallScripts({ npm, native }: Facts): Finding[] {
  const name = 'install scripts'
  if (npm === undefined) return [{ name, state: 'ok', found: 'no npm here that could block them' }]
  const [major = 0, minor = 0] = npm.version.split('.').map(Number)
  const asks = major > 11 || (major === 11 && minor >= 19)
  if (!npm.ignoresScripts && !asks) {
    return [{ name, state: 'ok', found: `npm ${npm.version} runs them` }]
  }
  const why = npm.ignoresScripts ? 'ignore-scripts is set' : 'unless they are approved'
  const found = `npm ${npm.version} skips them (${why}); tsrun needs none`
  if (native.available) {
    const advice =
      'TensorFlow’s own package needs its script: tsrun setup tensorflow does without it.'
    return [{ name, state: 'ok', found, advice }]
  }
  const advice = 'If koffi is missing for that reason: npm rebuild koffi --ignore-scripts=false.'
  return [{ name, state: 'note', found, advice }]
}
