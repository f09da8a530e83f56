#!/usr/bin/env bash
# Checks that tensors are computed on the NVIDIA GPU of this machine and that the results are right, and
# measures the speed. For each backend it runs products of matrices, a training step, 50 steps whose
# losses are compared with those of plain JavaScript, and the pipeline example. Meanwhile, nvidia-smi
# reports utilisation and memory. With two GPUs, tensorflow also reduces tensors between them.
#
#   scripts/gpu-check.sh [--cpu] [--sizes LIST] [--images N] [BACKEND...]     default: tensorflow webgpu
#
#   --cpu     the same checks on a machine without a GPU; the default backend is wasm
#   --sizes   sizes of the matrices; default 1024,2048,4096,8192, or 256,512,1024 with --cpu
#   --images  of which the pipeline trains; default 60000, or 10000 with --cpu
#
# The exit code is 0 if all checks pass, 1 if one fails, 2 for wrong usage, and 3 if there is no GPU.
set -uo pipefail
cd "$(dirname "$0")/.."

cpu=false
backends=()
list=
images=
usage() {
  echo "gpu-check: $1; usage: scripts/gpu-check.sh [--cpu] [--sizes LIST] [--images N] [BACKEND...]" >&2
  exit 2
}
while [ $# -gt 0 ]; do
  case $1 in
    --cpu) cpu=true ;;
    --help | -h)
      sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    --sizes)
      shift
      list=${1-}
      if ! [[ $list =~ ^[1-9][0-9]*(,[1-9][0-9]*)*$ ]]; then usage "--sizes takes numbers, as in 512,1024"; fi
      ;;
    --images)
      shift
      images=${1-}
      if ! [[ $images =~ ^[1-9][0-9]*$ ]]; then usage "--images takes a number"; fi
      ;;
    tensorflow | webgpu | wasm | cpu) backends+=("$1") ;;
    *) usage "unknown argument $1" ;;
  esac
  shift
done

if $cpu; then
  sizes=256,512,1024
  images=${images:-10000}
  if [ ${#backends[@]} -eq 0 ]; then backends=(wasm); fi
else
  if ! nvidia-smi -L >/dev/null 2>&1; then
    echo 'gpu-check: there is no NVIDIA GPU here (nvidia-smi shows none); --cpu runs the same checks on the CPU' >&2
    exit 3
  fi
  sizes=1024,2048,4096,8192
  images=${images:-60000}
  if [ ${#backends[@]} -eq 0 ]; then backends=(tensorflow webgpu); fi
  nvidia-smi --query-gpu=index,name,driver_version,memory.total --format=csv
fi
IFS=, read -ra sizes <<<"${list:-$sizes}"

work=$(mktemp -d)
monitor=
finish() {
  if [ -n "$monitor" ]; then kill "$monitor" 2>/dev/null; fi
  rm -rf "$work"
}
trap finish EXIT
failures=0
# Otherwise TensorFlow reserves all memory at once, and nvidia-smi cannot show how much it needs.
export TF_FORCE_GPU_ALLOW_GROWTH=true

say() { printf '%-11s %s\n' "$1" "$2"; }

fail() {
  say "$1" "FAILED: $2"
  failures=$((failures + 1))
}

# The error that a failed program ended with, or else its last line.
reason() {
  { grep -m 1 -E '^((error +)?\w*Error|tsrun):' "$1" || tail -n 1 "$1"; } | sed -E 's/^error +//' | cut -c 1-300
}

# Runs as the only rank of a job, because tsrun sets its device and the libraries of TensorFlow.
measure() {
  npx tsrun --no-summary --log-format raw scripts/gpu-measure.mjs "$@"
}

start_monitor() {
  if $cpu; then return; fi
  nvidia-smi --query-gpu=utilization.gpu,memory.used --format=csv,noheader,nounits \
    --loop-ms=200 >"$work/usage" 2>/dev/null &
  monitor=$!
}

stop_monitor() {
  if [ -z "$monitor" ]; then return; fi
  # Its first sample takes a moment.
  for _ in {1..50}; do
    if [ -s "$work/usage" ]; then break; fi
    sleep 0.1
  done
  kill "$monitor" 2>/dev/null
  wait "$monitor" 2>/dev/null
  monitor=
  say "$1" "$(awk -F', *' '
    { if ($1 > busy) busy = $1; if ($2 > memory) memory = $2 }
    END { printf "nvidia-smi: GPU busy up to %d %%, memory used up to %d MiB (%d samples)", busy, memory, NR }
  ' "$work/usage")"
}

# Whether the backend reports one of the GPUs that nvidia-smi lists as its device.
is_on_gpu() {
  local device name
  device=$(sed -n 's/^device \(.*\), [0-9]* threads\?$/\1/p' "$1")
  if [ "$device" = GPU ]; then return 0; fi # a partition of a GPU, which nvidia-smi does not name
  while read -r name; do
    if [ -n "$name" ] && [[ $device == *"$name"* ]]; then return 0; fi
  done < <(nvidia-smi --query-gpu=name --format=csv,noheader)
  return 1
}

# check <backend>
check() {
  local backend=$1
  start_monitor
  if measure speed "$backend" "${sizes[@]}" >"$work/speed" 2>"$work/log"; then
    while read -r line; do say "$backend" "$line"; done <"$work/speed"
    if ! $cpu && ! is_on_gpu "$work/speed"; then
      fail "$backend" "it does not compute on the GPU (docs/gpu.md)"
    fi
  else
    fail "$backend" "$(reason "$work/log")"
    stop_monitor "$backend"
    return
  fi

  # TF32, whose products have a mantissa of 10 bits, is switched off: the bound is for float32.
  if NVIDIA_TF32_OVERRIDE=0 measure losses "$backend" \
    >"$work/$backend.json" 2>"$work/log"; then
    if node scripts/gpu-measure.mjs compare "$work/$backend.json" "$work/reference.json" \
      >"$work/comparison" 2>&1; then
      say "$backend" "$(cat "$work/comparison")"
    else
      fail "$backend" "$(reason "$work/comparison")"
    fi
  else
    fail "$backend" "$(reason "$work/log")"
  fi

  if TSRUN_BACKEND=$backend npx tsrun --nproc 2 --no-summary --log-format raw \
    examples/pipeline.ts --epochs 1 --images "$images" >"$work/pipeline" 2>"$work/log"; then
    say "$backend" "pipeline of 2 ranks: $(grep '^result ' "$work/pipeline")"
  else
    fail "$backend" "pipeline of 2 ranks: $(reason "$work/log")"
  fi
  stop_monitor "$backend"
  if [ "$backend" = tensorflow ] && has_two_devices; then check_reductions; fi
}

has_two_devices() {
  ! $cpu && [ "$(nvidia-smi -L | grep -c '^GPU')" -ge 2 ]
}

# All-reduces of tensors by two ranks, each with a GPU of its own.
check_reductions() {
  if npx tsrun --nproc 2 --no-summary --log-format raw \
    scripts/gpu-measure.mjs reduce tensorflow >"$work/reduce" 2>"$work/log"; then
    say tensorflow "all-reduce of 2 ranks: $(cat "$work/reduce")"
  else
    fail tensorflow "all-reduce of 2 ranks: $(reason "$work/log")"
  fi
}

if ! measure losses cpu >"$work/reference.json" 2>"$work/log"; then
  reason "$work/log" >&2
  exit 1
fi
for backend in "${backends[@]}"; do check "$backend"; done
if [ "$failures" -gt 0 ]; then
  echo "gpu-check: $failures failed"
  exit 1
fi
echo 'gpu-check: all checks passed'
