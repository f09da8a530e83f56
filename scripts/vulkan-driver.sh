#!/usr/bin/env bash
# A Vulkan driver for machines without a GPU: SwiftShader, which computes on the CPU, and a loader,
# out of Debian's package chromium-common (32 MB). Nothing is installed; needs apt and dpkg.
#
#   scripts/vulkan-driver.sh [FOLDER]     default: node_modules/.cache/vulkan, where the tests look;
#                                         prints the variables that programs need
set -euo pipefail

folder=${1:-$(cd "$(dirname "$0")/.." && pwd)/node_modules/.cache/vulkan}

if [ ! -e "$folder/vk_swiftshader_icd.json" ]; then
  command -v apt-get >/dev/null && command -v dpkg >/dev/null || {
    echo 'vulkan-driver: this machine has no apt; install a Vulkan driver in its own way' >&2
    exit 1
  }
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  # apt gives up root to download; it has to get into the folder
  chmod 755 "$work"
  if ! (cd "$work" && apt-get download -qq chromium-common) >"$work/log" 2>&1; then
    cat "$work/log" >&2
    echo 'vulkan-driver: apt cannot download chromium-common (apt-get update may help)' >&2
    exit 1
  fi
  dpkg -x "$work"/chromium-common_*.deb "$work/package"
  mkdir -p "$folder"
  # the description last: it says that all is there
  cp "$work"/package/usr/lib/chromium/{libvk_swiftshader.so,libvulkan.so.1} "$folder/"
  cp "$work/package/usr/lib/chromium/vk_swiftshader_icd.json" "$folder/"
fi
folder=$(cd "$folder" && pwd)
echo "export VK_ICD_FILENAMES='$folder/vk_swiftshader_icd.json'"
echo "export LD_LIBRARY_PATH='$folder'\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
