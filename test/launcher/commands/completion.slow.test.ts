import { spawnSync } from 'node:child_process'
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { bin, cleanEnvironment } from '../support/tsrun.ts'
import { needing } from '../../needs.ts'

/** A project with a tsrun that is not on the PATH, as npx finds it. */
let project = ''
beforeAll(() => {
  project = mkdtempSync(join(tmpdir(), 'tsrun-completion-'))
  for (const folder of ['node_modules/.bin', 'logs', 'src/deep']) {
    mkdirSync(join(project, folder), { recursive: true })
  }
  symlinkSync(bin, join(project, 'node_modules/.bin/tsrun'))
  for (const file of ['train.ts', 'my script.ts', 'src/deep/other.ts'])
    writeFileSync(join(project, file), '')
})
afterAll(() => {
  rmSync(project, { recursive: true })
})

const has = (program: string): boolean =>
  spawnSync('sh', ['-c', `command -v ${program}`]).status === 0

const scriptOf = (shell: string): string =>
  fileURLToPath(new URL(`../../../packages/launcher/completion/tsrun.${shell}`, import.meta.url))

/** Runs a shell, without the files of the user, and gives it these lines. */
function run(command: readonly string[], input: string, folder = ''): string {
  const [program = '', ...args] = command
  const env = { ...cleanEnvironment(), HOME: project, PATH: pathWithoutTsrun(), TERM: 'xterm' }
  const { stdout, stderr, error } = spawnSync(program, args, {
    ...{ cwd: join(project, folder), input, env, encoding: 'utf8', timeout: 30_000 },
  })
  if (error !== undefined) throw error
  return stdout + stderr
}

/** npm puts the programs of this workspace on the PATH of its scripts. */
function pathWithoutTsrun(): string {
  const folders = (process.env['PATH'] ?? '').split(':')
  return folders.filter((folder) => !folder.endsWith('node_modules/.bin')).join(':')
}

/** Types each line into an interactive shell, and Tab at its end; what the shell has made of it. */
function type(
  shell: readonly string[],
  setUp: string,
  lines: readonly string[],
  folder = '',
): string[] {
  // Ctrl-A, and the line is printed instead of run.
  const keys = lines.map((line) => `${line}\t\u0001echo "GOT \u0005"\n`)
  const text = `stty -echo\n${setUp}\n${keys.join('')}exit\n`
  const output = run(['script', '-qec', shell.join(' '), '/dev/null'], text, folder)
  return [...output.replaceAll('\r', '').matchAll(/^GOT (.*)$/gm)].map(([, line]) =>
    line!.trimEnd(),
  )
}

/** What is typed before Tab, and what there is after it. */
const completed = [
  ['npx tsrun doc', 'npx tsrun doctor'],
  ['npx tsrun --log-fo', 'npx tsrun --log-format'],
  ['npx tsrun --log-format js', 'npx tsrun --log-format json'],
  ['npx tsrun --log-format=js', 'npx tsrun --log-format=json'],
  ['npx --no tsrun --bind nu', 'npx --no tsrun --bind numa'],
  ['npx -p @tsrun/launcher tsrun setup te', 'npx -p @tsrun/launcher tsrun setup tensorflow'],
  ['npx tsrun --nproc 2 tra', 'npx tsrun --nproc 2 train.ts'],
  ['npx tsrun --token-file=tra', 'npx tsrun --token-file=train.ts'],
  ['npx tsrun train.ts --lr lo', 'npx tsrun train.ts --lr logs/'],
  ['npx tsr', 'npx tsrun'],
  ['tsrun fli', 'tsrun flight'],
] as const

const before = completed.map(([typed]) => typed)
const after = completed.map(([, line]) => line)

const bash = ['bash', '--norc', '--noprofile', '-i']
const hasBash = has('bash') && has('script')
needing(hasBash, 'bash or script').describe('bash', () => {
  const source = `source ${scriptOf('bash')}`

  it('completes tsrun behind npx in bash: commands, flags, values, files', () => {
    expect(type(bash, source, before)).toEqual(after)
  })

  it('finds the tsrun of the project from a subfolder', () => {
    expect(type(bash, source, ['npx tsrun doc', 'npx tsrun oth'], 'src/deep')).toEqual([
      'npx tsrun doctor',
      'npx tsrun other.ts',
    ])
  })

  it('leaves other commands of npx in bash to the existing completion of npx', () => {
    const other =
      '_other() { COMPREPLY=("${COMP_WORDS[1]}-by-npx"); }; complete -o nospace -F _other npx'
    const lines = ['npx esl', 'npx tsrun doc']
    const expected = ['npx esl-by-npx', 'npx tsrun doctor']
    expect(type(bash, `${other}\n${source}\n${source}`, lines)).toEqual(expected)
    expect(type(bash, source, ['npx esl tra'])).toEqual(['npx esl train.ts'])
  })

  it('completes nothing in bash if tsrun is not installed', () => {
    const outside = `cd /\n${source}`
    expect(type(bash, outside, ['npx tsr', 'npx tsrun --log-fo'])).toEqual([
      'npx tsr',
      'npx tsrun --log-fo',
    ])
  })
})

const hasZsh = has('zsh')
needing(hasZsh, 'zsh').describe('zsh', () => {
  /** The words that the functions offer for the last one of each line; stands in for those of zsh. */
  function offered(lines: readonly string[], other = ''): string[][] {
    const calls = lines.map((line) => {
      const words = line.split(' ').map((word) => `'${word}'`)
      const { length } = words
      const ask = `words=(${words.join(' ')}); CURRENT=${length}; PREFIX=${words.at(-1)!}`
      return `${ask}; print -n '<'; $_comps[$words[1]]; print '>'`
    })
    const program = [
      'typeset -A _comps; compdef() { _comps[$2]=$1 }; compset() { : }; _default() { print -n default }',
      "_describe() { print -n -- ${(j: :)found%%:*} }; _files() { print -n -- ' files' $* }",
      "compadd() { print -n -- ' '$* }",
      other,
      ...[`source ${scriptOf('zsh')}`, `source ${scriptOf('zsh')}`],
      ...calls,
    ].join('\n')
    const output = run(['zsh', '-f', '-c', program], '')
    return [...output.matchAll(/<([^>]*)>/g)].map(([, words]) => words!.trim().split(' '))
  }

  it('completes tsrun behind npx in zsh: commands, flags, values, files', () => {
    const lines = [
      'npx tsrun --log-fo',
      'npx tsrun --bind=nu',
      'npx --no tsrun setup te',
      'tsrun fli',
    ]
    expect(offered([...lines, 'npx tsrun --nproc 2 tra', 'npx tsrun --log-dir l'])).toEqual([
      ['--log-format'],
      ['--bind=numa'],
      ['tensorflow'],
      ['flight', 'files'],
      ['files'],
      ['files', '-/'],
    ])
  })

  it('leaves other commands of npx in zsh to the existing completion of npx', () => {
    const other = '_comps[npx]=_other; _other() { print -n by-npx }'
    expect(offered(['npx esl tra', 'npx tsrun doc'], other)).toEqual([
      ['by-npx'],
      ['doctor', 'files'],
    ])
    expect(offered(['npx esl tra'])).toEqual([['default']])
  })
})

const hasFish = has('fish')
needing(hasFish, 'fish').describe('fish', () => {
  /** The words that fish offers for the last one of each line. */
  function offered(lines: readonly string[], other = ''): string[][] {
    const asked = lines.map((line) => `echo "<$(complete -C '${line}')>"`)
    const program = [other, `source ${scriptOf('fish')}`, ...asked].join('\n')
    const output = run(['fish', '--no-config', '-c', program], '')
    return [...output.matchAll(/<([^>]*)>/g)].map(([, words]) =>
      words!.split('\n').map((word) => word.split('\t', 1)[0]!),
    )
  }

  it('completes tsrun behind npx in fish: commands, flags, values, files', () => {
    const words = after.map((line) => [line.split(' ').at(-1)])
    expect(offered(before)).toEqual(words)
  })

  it('leaves other commands of npx in fish to the existing completion of npx', () => {
    const other = 'complete --command npx --no-files --arguments by-npx'
    expect(offered(['npx esl by', 'npx tsrun doc'], other)).toEqual([['by-npx'], ['doctor']])
  })
})
