import { mkdtempSync, rmSync, symlinkSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { FlagValues } from '../../internals/launcher/args.ts'
import { commandNames, parse } from '../../internals/launcher/commands.ts'
import { tsrunHere } from '../support/in-process.ts'

/** The flags of a job, and the script with its arguments; undefined when no job is to be started. */
async function read(argv: string[]): Promise<[FlagValues, readonly string[]] | undefined> {
  const { command, texts, words } = await parse(argv)
  expect(command).toBeUndefined()
  return texts && [texts, words]
}

it.each(['', ...commandNames])('the help page of tsrun %s fits 80 columns', async (name) => {
  const { stdout } = await tsrunHere([...(name === '' ? [] : [name]), '--help'])
  const lines = stdout.split('\n')
  expect(lines.length).toBeGreaterThan(5)
  expect(lines.filter((line) => line.length > 80)).toEqual([])
})

describe('the flags of a job', () => {
  it('may be spelled with dashes or underscores, and end at the script', async () => {
    const script = ['train.ts', '--lr', '0.10', '-n', '09', '--help', '--nproc', '7']
    const flags = ['--nproc_per_node=4', '--dry_run', '--grace', '5']
    const values = { nproc: '4', 'dry-run': 'true', grace: '5' }
    expect(await read([...flags, ...script])).toEqual([values, script])
  })

  it.each([
    [
      ['--nproc', '2', '--', 'train.ts', '--', '--lr'],
      ['train.ts', '--', '--lr'],
    ],
    [['--', 'doctor'], ['doctor']],
    [
      ['--dry-run', 'doctor', '--json'],
      ['doctor', '--json'],
    ],
  ])('end at -- or at the first word that is not a flag: %j', async (argv, command) => {
    expect((await read(argv))?.[1]).toEqual(command)
  })

  it.each([
    [['--nproc', '2', '--nproc', '3'], { nproc: '3' }],
    [['--log-dir=a', '--log_dir', 'b'], { 'log-dir': 'b' }],
    [['-r', '1', '--redirects', '3'], { redirects: '3' }],
    [['--nproc', '1', '--nproc-per-node', '2', '--nproc_per_node', '4'], { nproc: '4' }],
    [['--tls', '--no-tls'], { tls: 'false' }],
    [['--nproc', '2', '--nproc', '2', '--dry-run', '--dry-run'], { nproc: '2', 'dry-run': 'true' }],
    [['--ranks', '0', '--ranks', '2-3,5'], { ranks: '0,2-3,5' }],
    [
      ['--node-args', '--expose-gc', '--node_args=--max-old-space-size=9 --x'],
      { 'node-args': '--expose-gc --max-old-space-size=9 --x' },
    ],
  ])('repeated as in %j, join lists or use the last value', async (flags, values) => {
    const theirs = ['x.js', '--nproc', '8', '--nproc', '9']
    expect(await read([...flags, ...theirs])).toEqual([values, theirs])
  })

  it('may be switched off', async () => {
    expect(await read(['--no-summary', 'x.js'])).toEqual([{ summary: 'false' }, ['x.js']])
  })

  it.each([['--help'], ['-h'], ['--version']])('are not read with %s', async (flag) => {
    expect(await read(['--nproc', '2', flag, 'x.js'])).toBeUndefined()
  })
})

it.each([['trace'], ['view'], ['logs'], ['flight'], []])(
  'tsrun %s names a path that the system refuses, without a stack',
  async (...name: string[]) => {
    const folder = mkdtempSync(join(tmpdir(), 'tsrun-test-'))
    const loop = join(folder, 'loop')
    symlinkSync('loop', loop)
    const { code, stderr } = await tsrunHere([...name, loop])
    rmSync(folder, { recursive: true })
    expect({ code, stderr }).toEqual({
      code: 2,
      stderr: expect.stringMatching(/^tsrun: ELOOP: [^\n]*loop'\n$/),
    })
  },
)

describe('a mistake in the command line', () => {
  it.each([
    [['--nprocs', '2', 'x.js'], 'Unknown flag --nprocs (the nearest is --nproc)'],
    [['--masterport=1', 'x.js'], 'Unknown flag --masterport (the nearest is --master-port)'],
    [['--Max_Restart', '1', 'x.js'], 'Unknown flag --Max_Restart (the nearest is --max-restarts)'],
    [['-n', '2', 'x.js'], 'Unknown flag -n (a flag of mpirun; here --nproc)'],
    [['-np', '2', 'x.js'], 'Unknown flag -np (a flag of mpirun and horovodrun; here --nproc)'],
    [
      ['launch', '--num_processes', '2', 'x.js'],
      'Unknown flag --num_processes (a flag of accelerate; here --nproc, the ranks of each host)',
    ],
    [
      ['-mca', 'btl', 'tcp', 'x.js'],
      'Unknown flag -mca (a flag of mpirun; here --iface chooses the network)',
    ],
    [
      ['--ntasks-per-node=4', 'x.js'],
      'Unknown flag --ntasks-per-node (a flag of srun; here --nproc)',
    ],
    [
      ['--slots-per-host', '4', 'x.js'],
      'Unknown flag --slots-per-host (a flag of horovodrun; here --nproc)',
    ],
    [
      ['--config_file', 'a.yaml', 'x.js'],
      'Unknown flag --config_file (a flag of accelerate; here variables such as TSRUN_NPROC)',
    ],
    [['--num_nodes=2', 'x.js'], 'Unknown flag --num_nodes (a flag of deepspeed; here --nnodes)'],
    [['ps', '-n', '2'], 'Unknown flag -n of tsrun ps'],
    [['plan', 'layers', '12'], '--params and --memory and --ranks must be given'],
    [['hosts', 'file', '--', 'x.js'], '--hostfile must be given'],
    [
      ['completion', 'tcsh'],
      'Unknown argument tcsh of tsrun completion; expected bash or zsh or fish',
    ],
    [
      ['--standalone', '--nnodes', '2', 'hello.mjs'],
      '--standalone is a job of this host alone, so --nnodes must be 1',
    ],
    [['--xyzzy', 'x.js'], 'Unknown flag --xyzzy'],
    [['--grace'], '--grace needs a value'],
    [['doctor', '--jsn'], 'Unknown flag --jsn of tsrun doctor (the nearest is --json)'],
    [['env', '--jsn'], 'Unknown flag --jsn of tsrun env (the nearest is --json)'],
    [['env', 'now'], 'Unknown argument now of tsrun env'],
    [['doctor', 'now'], 'Unknown argument now of tsrun doctor'],
    [['ps', '--all'], 'Unknown flag --all of tsrun ps'],
    [['ps', 'one', 'two'], 'Unknown argument two of tsrun ps'],
    [['ps', 'one', '--', 'two'], 'Unknown argument two of tsrun ps'],
    [['trace', '.', '--', 'nowhere'], 'nowhere is not a folder'],
    [['view', 'nowhere', '.'], 'nowhere is not a folder'],
    [['flight'], 'tsrun flight needs an argument'],
    [['setup'], 'tsrun setup needs an argument'],
    [['setup', 'torch'], 'Unknown argument torch of tsrun setup; expected tensorflow or blas'],
    [['setup', 'blas', '--gpu'], '--gpu is only for tsrun setup tensorflow'],
    [['setup', 'blas', '--wheel', 'x'], '--wheel is only for tsrun setup tensorflow'],
    [['setup', 'tensorflow', 'twice'], 'Unknown argument twice of tsrun setup'],
    [
      ['setup', 'tensorflow', '--wheels', 'x'],
      'Unknown flag --wheels of tsrun setup (the nearest is --wheel)',
    ],
    [['setup', 'tensorflow', '--wheel'], '--wheel needs a value'],
    [['logs', '--no-tail'], '--tail is "false"; expected a number of lines'],
    [['hosts', '--hostfile', 'x', '--port', '0'], '--port is "0"; expected a port'],
    [
      ['top', '--interval', '0'],
      '--interval is "0"; expected a number of seconds above 0, up to 86400, or a time such as 250ms, 10m or 2h',
    ],
    [
      ['setup', 'tensorflow', '--wheel', '.', '--official'],
      '--wheel and --official exclude each other',
    ],
    [
      ['setup', 'tensorflow', '--python', 'python3', '--official'],
      '--python and --official exclude each other',
    ],
    [['setup', 'tensorflow', '--wheel', 'nowhere'], '--wheel names nowhere, which does not exist'],
  ])('is named in the error message: %j', async (argv, problem) => {
    const page = commandNames.includes(argv[0]!) ? `${argv[0]!} --help` : '--help'
    expect(await tsrunHere(argv)).toEqual({
      code: 2,
      stdout: '',
      stderr: `tsrun: ${problem}. See tsrun ${page}. (ERR_TSR_USAGE)\n`,
    })
  })

  it('in the name of a command suggests the most similar command', async () => {
    const { code, stderr } = await tsrunHere(['docter', '--json'])
    expect(code).toBe(2)
    expect(stderr).toMatch(
      /Cannot run docter: there is no file .*docter \(the nearest command is tsrun doctor\)/,
    )
    expect((await tsrunHere(['tpo'])).stderr).toContain('(the nearest command is tsrun top)')
    expect((await tsrunHere(['./docter'])).stderr).not.toContain('nearest')
  })
})

it('commands refuse a job or a folder that does not exist', async () => {
  expect(await tsrunHere(['ps', 'nothing'])).toEqual({
    code: 2,
    stdout: '',
    stderr: expect.stringContaining('You have no running job nothing on this host'),
  })
  expect(await tsrunHere(['flight', 'nowhere'])).toEqual({
    code: 2,
    stdout: '',
    stderr: expect.stringContaining('There are no flight records in nowhere: it is not a folder'),
  })
})

it('words of other tools are understood: help, launch, run, --print-completion', async () => {
  const pages = await Promise.all(
    [['help'], ['--help'], ['help', 'logs'], ['logs', '--help']].map((argv) => tsrunHere(argv)),
  )
  expect(pages[0]).toEqual(pages[1])
  expect(pages[2]).toEqual(pages[3])
  for (const word of ['launch', 'run']) {
    expect(await read([word, '--nproc', '2', 'x.js', 'y'])).toEqual([{ nproc: '2' }, ['x.js', 'y']])
  }
  const { code, stdout } = await tsrunHere(['--print-completion=fish'])
  expect(code).toBe(0)
  expect(stdout).toContain('Completion of tsrun in fish')
})

describe('a page of help', () => {
  it('has sections, with the left-overs of torchrun last, values, an example and an address', async () => {
    const { stdout } = await tsrunHere(['--help'])
    const titles = stdout.split('\n').filter((line) => /^[A-Z].*:$/.test(line))
    expect(titles.slice(0, 3)).toEqual(['Commands:', 'Help:', 'Ranks and hosts:'])
    expect(titles.slice(-2)).toEqual(['As for torchrun:', 'Examples:'])
    expect(stdout).toMatch(/--nnodes +N\|MIN:MAX: how many hosts/)
    expect(stdout).not.toContain('[string]')
    expect(stdout).toContain('tsrun --nproc 4 train.ts --lr 0.1')
    expect(stdout).toMatch(/^Documentation: https:\S+$/m)
  })

  it('lists the commands, and the flags of a job', async () => {
    const { code, stdout, stderr } = await tsrunHere(['--nproc', '2', '--help'])
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(stdout).toMatch(/^tsrun \[flags\] script \[arguments of the script\]\n/)
    for (const command of [
      'ps [run-id]',
      'flight <folder>',
      'doctor',
      'env',
      'setup',
      'completion',
    ]) {
      expect(stdout).toContain(`\n  tsrun ${command} `)
    }
  })

  it.each([
    [['doctor', '--help'], /^tsrun doctor \[--json\]\n[^]* --json /],
    [['env', '--help'], /^tsrun env \[--json\]\n[^]* --json /],
    [['ps', '-h'], /^tsrun ps \[run-id\] \[--json\]\n/],
    [['flight', '--help'], /^tsrun flight <folder>\n/],
    [['setup', '--help'], /^tsrun setup tensorflow \[flags\]\n[^]* --wheel /],
    [['setup', 'tensorflow', '--help'], /^tsrun setup tensorflow \[flags\]\n[^]* --wheel /],
    [['completion', '--help'], /^tsrun completion \[shell\]\n/],
  ])('is shown by %j', async (argv, page) => {
    const { code, stdout, stderr } = await tsrunHere(argv)
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' })
    expect(stdout).toMatch(page)
    expect(stdout).not.toContain('--nproc')
  })
})

it('--version prints the version, whatever else is on the command line', async () => {
  for (const argv of [['--version'], ['--nproc', '2', '--version', 'x.js']]) {
    expect(await tsrunHere(argv)).toEqual({
      code: 0,
      stdout: expect.stringMatching(/^\d+\.\d+\.\d+\n$/),
      stderr: '',
    })
  }
})

describe('completion', () => {
  const words = async (...line: string[]): Promise<string[]> => {
    const { code, stdout } = await tsrunHere(['--get-yargs-completions', 'tsrun', ...line])
    expect(code).toBe(0)
    const lines = stdout.split('\n').filter((word) => word !== '')
    return lines.map((word) => word.split('\t', 1)[0]!)
  }

  it.each(['bash', 'zsh', 'fish'])('has a script for %s', async (shell) => {
    const { code, stdout } = await tsrunHere(['completion', shell])
    expect(code).toBe(0)
    expect(stdout).toContain(`Completion of tsrun in ${shell}`)
  })

  it.each([
    [['--max'], ['--max-restarts']],
    [['do'], ['doctor', ':files']],
    [['doctor'], [':files']],
    [['flight', '--'], ['--help']],
    [
      ['setup', ''],
      ['tensorflow', 'blas'],
    ],
    [['setup', 'te'], ['tensorflow']],
    [['setup', '--official', 'te'], ['tensorflow']],
    [['setup', 'tensorflow', '--w'], ['--wheel']],
    [
      ['completion', ''],
      ['bash', 'zsh', 'fish'],
    ],
    [['--su'], ['--summary']],
    [
      ['--log-format', ''],
      ['pretty', 'json', 'raw'],
    ],
    [['--bind=n'], ['--bind=numa', '--bind=none']],
    [
      ['--nproc', ''],
      ['auto', 'gpu', 'cpu'],
    ],
    [['--grace', ''], []],
    // The shell completes the names of scripts and folders.
    [['flight', ''], [':files']],
    [['--log-dir', ''], [':folders']],
    [['--token-file='], [':files']],
    [['hosts', '--hostfile', ''], [':files']],
    [['logs', '-n'], ['-n']],
    [['--nproc', '2', 'tr'], [':files']],
    [['train.ts', '--gr'], [':files']],
  ])('of %j is %j', async (line, expected) => {
    expect(await words(...line)).toEqual(expected)
  })
})
