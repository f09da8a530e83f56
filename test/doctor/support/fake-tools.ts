import { chmodSync, existsSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { delimiter, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const { resolve } = createRequire(
  new URL('../../../packages/training/package.json', import.meta.url),
)
const core = resolve('@tensorflow/tfjs-core')
const cpu = resolve('@tensorflow/tfjs-backend-cpu')
const gradients = fileURLToPath(
  new URL('../../../packages/training/dist/gradients.cjs', import.meta.url),
)

/** A binding that computes right, on the CPU unless BINDING is `gpu`, with kernels of TensorFlow.js, and says that it is TensorFlow. */
const packageProgram = `
if (process.env.BINDING === 'broken') throw new Error('libtensorflow_cc.so.2: wrong ELF class')
const tf = require(${JSON.stringify(core)})
require(${JSON.stringify(cpu)})
require(${JSON.stringify(gradients)})
for (const kernel of tf.getKernelsForBackend('cpu')) {
  tf.registerKernel({ ...kernel, backendName: 'tensorflow' })
}
const hidden = ['', '-1'].includes(process.env.CUDA_VISIBLE_DEVICES)
const onGpu = process.env.BINDING === 'gpu' && !hidden
if (onGpu) {
  console.error(
    'I0000 00:00:17 gpu_device.cc:2020] Created device /job:localhost/replica:0/task:0/device:GPU:0 ' +
    'with 78763 MB memory:  -> device: 0, name: NVIDIA Played, pci bus id: 0000:04:00.0')
}
if (process.env.BINDING === 'no-driver') {
  console.error(
    '2026-11-22 12:00:00.1: I external/local_xla/xla/tsl/cuda/cudart_stub.cc:31] ' +
    'Could not find cuda drivers on your machine, GPU will not be used.')
}
const facts = { isUsingGpuDevice: onGpu, binding: { TF_Version: '2.99.0' } }
tf.registerBackend('tensorflow', () => Object.assign(tf.findBackendFactory('cpu')(), facts), 9)
tf.setBackend('tensorflow')
module.exports = tf
`

const scripts = {
  npm: `
    [ "$1" = --version ] && echo 11.0.0 && exit
    case "$NPM" in
      offline) echo 'npm error code ENOTFOUND' >&2; echo 'npm error network request failed' >&2; exit 1 ;;
      other-file) echo 'npm error code EINTEGRITY' >&2; echo 'npm error sha512-w== integrity checksum failed when using sha512: wanted sha512-w== but got sha512-g==. (9 bytes)' >&2; exit 1 ;;
      hang) echo $$ >"$MARK"; exec sleep 1000 ;;
    esac
    [ "$1 $2" = 'ci --prefix' ] && [ "$4" = --ignore-scripts ] && [ -f "$3/package-lock.json" ] || exit 9
    for name in tfjs-node tfjs-node-gpu; do
      package=$3/node_modules/@tensorflow/$name
      mkdir -p $package/binding $package/scripts
      echo '{ "version": "4.22.0" }' >$package/package.json
      cp "$HERE/package.cjs" $package/index.js
      cp "$HERE/install.cjs" $package/scripts/install.js
    done
    mkdir -p "$3/node_modules/node-api-headers/include"`,
  python3: `
    case "$1 $2" in
      -c*ensurepip*)
        echo 3.12.0
        [ "$PYTHON" = no-venv ] && echo 'ModuleNotFoundError: ensurepip' >&2 && exit 1
        exit 0 ;;
      -c*'import pip'*)
        echo 3.12.0
        [ "$PYTHON" = no-pip ] && echo 'ModuleNotFoundError: pip' >&2 && exit 1
        exit 0 ;;
      -c*find_spec*) [ -d "$(dirname "$0")/tensorflow" ] && echo "$(dirname "$0")/tensorflow"; exit 0 ;;
      '-m venv') mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; exit 0 ;;
      '-m pip') echo "$@" >"$HERE/pip-arguments" ;;
      *) exit 9 ;;
    esac
    case "$PIP" in
      offline)
        echo "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after connection broken by 'NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f06>: Failed to establish a new connection: [Errno 111] Connection refused')': /simple/tensorflow-cpu/" >&2
        echo 'ERROR: Could not find a version that satisfies the requirement tensorflow-cpu==2.21.0 (from versions: none)' >&2
        echo 'ERROR: No matching distribution found for tensorflow-cpu==2.21.0' >&2
        exit 1 ;;
      other-file)
        echo 'ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated the package versions, please update the hashes. Otherwise, examine the package contents carefully; someone may have tampered with them.' >&2
        echo '    tensorflow-cpu==2.21.0 from file:///w/tensorflow_cpu-2.21.0-py3-none-any.whl (from -r r.txt (line 1)):' >&2
        echo '        Expected sha256 05af7c26d35f4de910b5598c7b507e3981831a7b0f47fed9a405d995d51d7793' >&2
        echo '             Got        1111111111111111111111111111111111111111111111111111111111111111' >&2
        exit 1 ;;
      no-wheel)
        echo 'ERROR: Could not find a version that satisfies the requirement x (from versions: none)' >&2
        echo 'ERROR: No matching distribution found for x' >&2
        exit 1 ;;
      full)
        echo 'ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device' >&2
        exit 1 ;;
      other-wheel) exit 0 ;;
      hang) echo $$ >"$MARK"; exec sleep 1000 ;;
    esac
    case "$*" in
      *--target*)
        target=\${*#*--target }
        libraries=\${target%% *}/scipy_openblas32/lib
        mkdir -p "$libraries"
        cp "$BLAS" "$libraries/libscipy_openblas.so"
        exit ;;
    esac
    wheel=$(dirname "$0")/tensorflow
    mkdir -p "$wheel/include/tensorflow/c/eager"
    [ "$PIP" = no-headers ] || touch "$wheel/include/tensorflow/c/eager/c_api.h"
    touch "$wheel/libtensorflow_cc.so.2" "$wheel/libtensorflow_framework.so.2"`,
  'g++': `
    [ "$1" = --version ] && echo 'g++ 13.0' && exit
    case "$*" in
      *-fsyntax-only*) [ "$COMPILER" != no-library ] ;;
      *kernels.cc*)
        [ "$COMPILER" != no-kernels ] && { [ "$COMPILER" != old ] || case "$*" in *avx512*) false ;; esac; } && exit
        echo "kernels.cc:5:10: fatal error: 'Eigen/Core' file not found" >&2
        exit 1 ;;
      *passes.cc*)
        [ "$COMPILER" != other-headers ] && [ "$COMPILER" != misfit ] && exit
        echo "passes.cc:9:1: error: 'TensorHandle' was not declared" >&2
        exit 1 ;;
      *tfjs_binding*)
        [ "$COMPILER" = misfit ] && echo "binding/tfjs_backend.cc:1:1: error: 'TFE_Op' was not declared" >&2 && exit 1
        exit 0 ;;
    esac`,
}

/** Downloads from the server that DOWNLOAD names, as the script of the package does. */
const installScript = `
const { DOWNLOAD, ARCHIVES } = process.env
if (DOWNLOAD === 'offline') {
  console.error('Error: 403')
  process.exit(1)
}
const http = require('node:http')
for (const name of ARCHIVES?.split(' ') ?? []) {
  http.get(DOWNLOAD + '/' + name, (response) => response.pipe(require('node:fs').createWriteStream('/dev/null')))
}
`

/** Lists the GPU that the variable GPU names, so that those of the host do not matter. */
const nvidiaSmi = `
    [ "$1" = -L ] || exit 9
    [ -z "$GPU" ] && echo 'No devices were found' && exit 6
    echo "GPU 0: $GPU (UUID: GPU-1)"`

type FakeTool = keyof typeof scripts

/** The programs that the fakes need, and the shell that starts `tsrun`. */
const real = ['bash', 'sh', 'mkdir', 'cp', 'cat', 'touch', 'dirname', 'sleep']

/** A PATH of its own with these fakes of npm, Python and the compiler; variables change what they do. */
export function fakeTools(folder: string, tools: readonly FakeTool[]): NodeJS.ProcessEnv {
  const bin = join(folder, 'bin')
  mkdirSync(bin)
  writeFileSync(join(folder, 'package.cjs'), packageProgram)
  writeFileSync(join(folder, 'install.cjs'), installScript)
  const programs = tools.map((name) => [name, scripts[name]] as const)
  for (const [name, script] of [...programs, ['nvidia-smi', nvidiaSmi] as const]) {
    const path = join(bin, name)
    writeFileSync(path, `#!/bin/sh\n${script}\n`)
    chmodSync(path, 0o755)
  }
  for (const name of real) symlinkSync(findReal(name), join(bin, name))
  return {
    PATH: bin,
    CXX: '',
    HERE: folder,
    MARK: join(folder, 'mark'),
    TSRUN_HOME: join(folder, 'home'),
  }
}

function findReal(name: string): string {
  const folders = (process.env['PATH'] ?? '').split(delimiter)
  const found = folders.map((folder) => join(folder, name)).find((path) => existsSync(path))
  if (found === undefined) throw new Error(`this test needs ${name} on the PATH`)
  return found
}
