#!/usr/bin/env bash
# Fetches a Vulkan driver for machines without a GPU: SwiftShader, which computes on the CPU, and a
# loader, both from Debian's package chromium-common (32 MB). Needs apt and dpkg, and installs nothing.
#
#   scripts/vulkan-driver.sh [FOLDER]     default: node_modules/.cache/vulkan, where the tests look;
#                                         prints the environment variables that programs need
set -euo pipefail

folder=${1:-$(cd "$(dirname "$0")/.." && pwd)/node_modules/.cache/vulkan}

if [ ! -e "$folder/vk_swiftshader_icd.json" ]; then
  command -v apt-get >/dev/null && command -v dpkg >/dev/null || {
    echo 'vulkan-driver: this machine has no apt; install a Vulkan driver with its package manager' >&2
    exit 1
  }
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  # apt drops root privileges to download, and must be able to enter the folder.
  chmod 755 "$work"
  if ! (cd "$work" && apt-get download -qq chromium-common) >"$work/log" 2>&1; then
    cat "$work/log" >&2
    echo 'vulkan-driver: apt cannot download chromium-common (apt-get update may help)' >&2
    exit 1
  fi
  dpkg -x "$work"/chromium-common_*.deb "$work/package"
  mkdir -p "$folder"
  # The description is copied last: if it exists, the installation is complete.
  cp "$work"/package/usr/lib/chromium/{libvk_swiftshader.so,libvulkan.so.1} "$folder/"
  cp "$work/package/usr/lib/chromium/vk_swiftshader_icd.json" "$folder/"
fi
folder=$(cd "$folder" && pwd)
echo "export VK_ICD_FILENAMES='$folder/vk_swiftshader_icd.json'"
echo "export LD_LIBRARY_PATH='$folder'\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
