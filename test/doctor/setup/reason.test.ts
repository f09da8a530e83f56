import { installAdvice, reasonOf } from '../../internals/doctor.ts'

const failed = (...lines: string[]) => ({ ok: false, stdout: '', stderr: lines.join('\n') })

it.each([
  ["a.cc:3:1: error: 'x' was not declared\n1 error", "a.cc:3:1: error: 'x' was not declared"],
  [
    'Error: getaddrinfo ENOTFOUND host\n  errno: -3\n\nNode.js v20',
    'Error: getaddrinfo ENOTFOUND host',
  ],
  ['something else\n\n', 'something else'],
  ['', 'it printed nothing'],
])('finds the most informative line in %j', (stderr, reason) => {
  expect(reasonOf(failed(stderr))).toBe(reason)
})

// What npm 11 and pip 25 print.
describe('the advice after a failure', () => {
  const advise = (...lines: string[]) =>
    installAdvice(failed(...lines), 'the registry', 'there is no wheel')

  it.each([
    [
      [
        'npm error code ECONNREFUSED',
        'npm error syscall connect',
        'npm error FetchError: request to http://127.0.0.1:9/x failed, reason: connect ECONNREFUSED 127.0.0.1:9',
      ],
      'this host cannot reach the registry',
    ],
    [
      [
        'npm error code ENOTFOUND',
        'npm error network request to http://nowhere.invalid/x failed, reason: getaddrinfo ENOTFOUND nowhere.invalid',
      ],
      'this host cannot reach the registry',
    ],
    [
      [
        'npm warn tar TAR_ENTRY_ERROR ENOSPC: no space left on device, write',
        'npm error code ENOSPC',
      ],
      expect.stringContaining('free some space'),
    ],
    [
      ['npm error code E404', 'npm error 404 Not Found'],
      expect.stringMatching(/^check the registry/),
    ],
    [['npm error code EINTEGRITY'], expect.stringContaining('gives other files')],
  ])('of npm is chosen by its output: %#', (lines, advice) => {
    expect(advise(...lines)).toEqual(advice)
  })

  const none =
    'ERROR: Could not find a version that satisfies the requirement tensorflow-cpu==2.21.0 (from versions: none)'
  const nothing = 'ERROR: No matching distribution found for tensorflow-cpu==2.21.0'
  const retry = (error: string): string =>
    'WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after ' +
    `connection broken by '${error}': /simple/tensorflow-cpu/`
  const refused =
    "NewConnectionError('<pip._vendor.urllib3.connection.HTTPConnection object at 0x7f060be02310>: " +
    "Failed to establish a new connection: [Errno 111] Connection refused')"
  const old =
    'ERROR: Could not find a version that satisfies the requirement tensorflow-cpu==2.21.0 (from versions: 2.12.0, 2.13.1)'
  const unfit =
    'ERROR: tensorflow_cpu-2.18.0-cp39-cp39-manylinux_2_17_x86_64.whl is not a supported wheel on this platform.'
  const damaged =
    "ERROR: Wheel 'tensorflow' located at /w/tensorflow-2.21.0-cp311-cp311-any.whl is invalid."
  const full =
    'ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device'
  const slow =
    "pip._vendor.urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool(host='files.example.org', port=443): Read timed out."

  it.each([
    [[retry(refused), none, nothing], 'this host cannot reach the registry'],
    [
      [retry(`ProxyError('Cannot connect to proxy.', ${refused})`), none, nothing],
      'this host cannot reach the registry',
    ],
    [[slow], 'this host cannot reach the registry'],
    [[none, nothing], 'there is no wheel'],
    [[retry(refused), old, nothing], 'there is no wheel'],
    [[unfit], 'there is no wheel'],
    [[damaged], expect.stringContaining('the wheel is damaged')],
    [[full], expect.stringContaining('free some space')],
    [['ERROR: Exception:', 'KeyError: 1'], expect.stringMatching(/^check the registry/)],
  ])('of pip is chosen by its output: %#', (lines, advice) => {
    expect(advise(...lines)).toEqual(advice)
  })
})

it('finds the line of npm that says why it failed', () => {
  const lines = [
    'npm error code E404',
    'npm error 404 Not Found - GET https://registry.example.org/y - Not found',
    'npm error A complete log of this run can be found in: /c/_logs/debug-0.log',
  ]
  expect(reasonOf(failed(...lines))).toBe(lines[1])
})
