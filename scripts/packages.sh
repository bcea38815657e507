#!/bin/sh
# Installs what the build needs on Debian or Ubuntu; does nothing when all of it is there. sudo only when not root.
set -eu
packages="build-essential cmake ninja-build pkg-config git ca-certificates ccache curl
  libssl-dev libcurl4-openssl-dev libzstd-dev libcli11-dev nlohmann-json3-dev doctest-dev
  libexpected-dev libboost-dev libpcre2-dev libutf8proc-dev"

missing=
for p in $packages; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $p"
done
[ -z "$missing" ] && exit 0

if ! command -v apt-get >/dev/null; then
  echo "packages.sh: this system has no apt-get; install the equivalents of:$missing" >&2
  exit 5
fi
sudo=
[ "$(id -u)" -eq 0 ] || sudo=sudo
echo "installing:$missing"
$sudo apt-get update -qq
# shellcheck disable=SC2086  # a list of words on purpose
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
