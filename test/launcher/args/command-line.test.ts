import { readCommandLine } from '../../../packages/launcher/src/args/command-line.ts'

it('takes both spellings, and leaves everything from the script on alone', async () => {
  const argv = [
    '--nproc_per_node=4',
    '--dry-run',
    '--grace',
    '5',
    'train.ts',
    '--lr',
    '0.10',
    '-n',
    '09',
  ]
  expect(await readCommandLine(argv)).toEqual({
    action: 'run',
    values: { nproc: '4', 'dry-run': 'true', grace: '5' },
    command: ['train.ts', '--lr', '0.10', '-n', '09'],
  })
})

it('lets the last of two equal flags win', async () => {
  const line = await readCommandLine(['--nproc', '2', '--nproc', '3', 'train.ts'])
  expect(line).toMatchObject({ values: { nproc: '3' } })
})

it('reads --no-summary', async () => {
  expect(await readCommandLine(['--no-summary', 'x.js'])).toMatchObject({
    values: { summary: 'false' },
  })
})

it('sees help and version before anything else', async () => {
  expect(await readCommandLine(['--help'])).toEqual({ action: 'help' })
  expect(await readCommandLine(['--nproc', '2', '--version', 'x.js'])).toEqual({
    action: 'version',
  })
  expect(await readCommandLine(['x.js', '--help'])).toMatchObject({
    action: 'run',
    command: ['x.js', '--help'],
  })
})

it.each([
  [['--nprocs', '2', 'x.js'], 'Unknown flag --nprocs (the nearest is --nproc)'],
  [['--masterport=1', 'x.js'], 'Unknown flag --masterport (the nearest is --master-port)'],
  [['--Max_Restart', '1', 'x.js'], 'Unknown flag --Max_Restart (the nearest is --max-restarts)'],
  [['-n', '2', 'x.js'], 'Unknown flag -n (the nearest is --nproc)'],
  [['--grace'], '--grace needs a value'],
])('refuses %j', async (argv, problem) => {
  await expect(readCommandLine(argv)).rejects.toMatchObject({
    code: 'ERR_TSR_USAGE',
    facts: { problem },
  })
})
