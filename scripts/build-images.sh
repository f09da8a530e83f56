#!/usr/bin/env bash
# Builds the images of a version on base images that are pinned by digest, and with --push publishes them.
#
#   scripts/build-images.sh [--push] NAME VERSION [cpu] [gpu]       default: both
#
# NAME:VERSION is the image without GPUs, NAME:VERSION-gpu the one with CUDA. Each base image is looked up in its
# registry once, and the images are built on the digests that were found; the lines that begin with
# "base" say which. Needs Docker with buildx, and with --push a login.
set -euo pipefail
cd "$(dirname "$0")/.."

output=--load
if [ "${1-}" = --push ]; then
  # What was built, from what, and the packages inside.
  output='--push --provenance=mode=max --sbom=true'
  shift
fi
if [ $# -lt 2 ]; then
  echo 'build-images: usage: scripts/build-images.sh [--push] NAME VERSION [cpu] [gpu]' >&2
  exit 2
fi
name=$1
version=$2
shift 2
if [ $# -eq 0 ]; then set -- cpu gpu; fi
revision=$(git rev-parse HEAD)
# The address of the repository, from package.json.
source=$(sed -n 's|.*"git+\(https:.*\)\.git".*|\1|p' package.json)

bases=()
while IFS='=' read -r argument image; do
  digest=$(docker buildx imagetools inspect "$image" --format '{{.Manifest.Digest}}')
  echo "base $image@$digest"
  bases+=(--build-arg "$argument=$image@$digest")
done < <(sed -n '/^FROM/q;s/^ARG //p' Dockerfile)

for target in "$@"; do
  tag=$version
  if [ "$target" = gpu ]; then tag=$version-gpu; fi
  # shellcheck disable=SC2086
  docker buildx build $output --target "$target" "${bases[@]}" --tag "$name:$tag" \
    --build-arg "VERSION=$version" --build-arg "REVISION=$revision" --build-arg "SOURCE=$source" .
done
