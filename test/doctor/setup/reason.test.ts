import { npmFailure, pipFailure, reasonOf, roomAdvice, sizeOf } from '../../internals/doctor.ts'

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
describe('a failure of npm', () => {
  it.each([
    [
      failed(
        'npm error code ECONNREFUSED',
        'npm error syscall connect',
        'npm error errno ECONNREFUSED',
        'npm error FetchError: request to http://127.0.0.1:9/x failed, reason: connect ECONNREFUSED 127.0.0.1:9',
        'npm error A complete log of this run can be found in: /c/_logs/debug-0.log',
      ),
      {
        kind: 'offline',
        reason:
          'npm error FetchError: request to http://127.0.0.1:9/x failed, reason: connect ECONNREFUSED 127.0.0.1:9',
      },
    ],
    [
      failed(
        'npm error code ENOTFOUND',
        'npm error syscall getaddrinfo',
        'npm error errno ENOTFOUND',
        'npm error network request to http://nowhere.invalid/x failed, reason: getaddrinfo ENOTFOUND nowhere.invalid',
        'npm error network This is a problem related to network connectivity.',
      ),
      {
        kind: 'offline',
        reason:
          'npm error network request to http://nowhere.invalid/x failed, reason: getaddrinfo ENOTFOUND nowhere.invalid',
      },
    ],
    [
      failed(
        'npm warn tar TAR_ENTRY_ERROR ENOSPC: no space left on device, write',
        'npm error code ENOSPC',
        'npm error syscall write',
        'npm error errno -28',
        'npm error nospc ENOSPC: no space left on device, write',
      ),
      { kind: 'full', reason: 'npm error nospc ENOSPC: no space left on device, write' },
    ],
    [
      failed(
        'npm error code E404',
        'npm error 404 Not Found - GET https://registry.example.org/y - Not found',
      ),
      {
        kind: 'other',
        reason: 'npm error 404 Not Found - GET https://registry.example.org/y - Not found',
      },
    ],
  ])('is classified by its output: %#', (output, failure) => {
    expect(npmFailure(output)).toEqual(failure)
  })
})

describe('a failure of pip', () => {
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
    [failed(retry(refused), none, nothing), 'offline', '[Errno 111] Connection refused'],
    [
      failed(retry(`ProxyError('Cannot connect to proxy.', ${refused})`), none, nothing),
      'offline',
      '[Errno 111] Connection refused',
    ],
    [failed(slow), 'offline', slow],
    [failed(none, nothing), 'no wheel', none],
    [failed(retry(refused), old, nothing), 'no wheel', old],
    [failed(unfit), 'no wheel', unfit],
    [failed(damaged), 'damaged', damaged],
    [failed(full), 'full', full],
    [failed('ERROR: Exception:', 'KeyError: 1'), 'other', 'ERROR: Exception:'],
  ])('is classified by its output: %#', (output, kind, reason) => {
    expect(pipFailure(output)).toEqual({ kind, reason })
  })
})

it('says how much disk space a set-up needs', () => {
  expect(roomAdvice(sizeOf(false), '/f')).toContain('about 2 GB in /f')
  expect(roomAdvice(sizeOf(true), '/f')).toContain('about 7 GB in /f')
})
