#!/bin/sh
# Install Debian's Chromium, for the tests that open the report in a browser. Where that cannot be done, say so: those
# tests are then skipped.
if command -v chromium >/dev/null; then
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq &&
    apt-get install -y -qq --no-install-recommends chromium >/dev/null; then
    echo "Chromium is installed: its tests run."
else
    echo "Chromium cannot be installed here: its tests are skipped."
fi
