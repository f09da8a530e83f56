import { completeSettings, remarksOn, type FlagValues } from '../../internals/launcher/args.ts'

const remarks = (
  values: FlagValues,
  words: readonly string[] = [],
  env: Record<string, string> = {},
): string[] => remarksOn(completeSettings(values, env), words, env)

it('a usual command line and environment have no remarks', () => {
  const env = {
    TSRUN_NPROC: '2',
    TSRUN_BACKEND: 'wasm',
    PET_NNODES: '1',
    PETNAME: 'x',
    TSRUN_QQQQ: '',
  }
  expect(remarks({ tls: 'true', nnodes: '2' }, ['--epochs', '3', '--trace', 'x'], env)).toEqual([])
})

it.each(['--nproc', '--nproc_per_node=2', '--max-restarts'])(
  'the flag %s after the script is remarked on, unless it is given before it, too',
  (word) => {
    expect(remarks({}, ['--lr', '1', word, '2'])).toEqual([
      `${word} follows the script, so the script gets it; flags of tsrun precede the script`,
    ])
    expect(remarks({ nproc: '2', 'max-restarts': '3' }, [word])).toEqual([])
  },
)

it('--tls on one host is remarked on', () => {
  expect(remarks({ tls: 'true' })).toEqual([
    '--tls is for several hosts; nothing of this job goes over the network',
  ])
})

it('misspelt variables are remarked on, with the nearest name', () => {
  const env = { TSRUN_NPORC: '2', TSRUN_BACKENT: 'wasm', PET_NNODE: '2' }
  expect(remarks({}, [], env)).toEqual([
    'TSRUN_NPORC has no effect (the nearest is TSRUN_NPROC)',
    'TSRUN_BACKENT has no effect (the nearest is TSRUN_BACKEND)',
    'PET_NNODE has no effect (the nearest is PET_NNODES)',
  ])
})
