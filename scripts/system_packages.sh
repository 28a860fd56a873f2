#!/bin/sh
# Installs those of Debian's packages named that are missing, where it may (root, or sudo without a password);
# otherwise says the one line to run.
set -eu
missing=
for package in "$@"; do
    case $package in
    chromium) command -v chromium >/dev/null || command -v chromium-browser >/dev/null || missing="$missing $package" ;;
    *) dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing="$missing $package" ;;
    esac
done
[ -z "$missing" ] && exit 0
if ! command -v apt-get >/dev/null; then
    echo "missing:$missing; install them with this system's package manager" >&2
    exit 2
fi
if [ "$(id -u)" = 0 ]; then
    sudo=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    sudo='sudo -n'
else
    echo "missing system packages; run: sudo apt-get install -y$missing" >&2
    exit 2
fi
echo "installing:$missing" >&2
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
$sudo apt-get update -qq >/dev/null 2>&1 || true
# shellcheck disable=SC2086
$sudo apt-get install -y -qq --no-install-recommends $missing >/dev/null
