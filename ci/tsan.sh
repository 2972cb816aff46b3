#!/usr/bin/env bash
# The tests on real threads under ThreadSanitizer, with a standard library that is instrumented too:
# the prebuilt one gives false alarms. Its source matches one compiler only, so both come from
# Debian (rust-web 1.96, bookworm-security) and are unpacked into a folder; the sanitizer's runtime
# is the stable toolchain's.
#
#   ci/tsan.sh [TEST...]     names of test binaries (stress, pool)
set -euo pipefail
cd "$(dirname "$0")/.."

readonly TARGET=x86_64-unknown-linux-gnu
readonly HERE=$PWD/target/tsan
readonly LIBS=$HERE/root/usr/lib/rustlib/$TARGET/lib

if [[ ! -x $HERE/rustc ]]; then
  mkdir -p "$HERE/debs"
  (
    cd "$HERE/debs"
    packages=(rustc-web rust-web-src libstd-rust-web-dev)
    for package in libstd-rust-web-dev libstd-rust-web-1.96; do
      mapfile -t -O "${#packages[@]}" packages < <(apt-cache depends "$package" |
        sed -n 's/.*Depends: \(lib\(std-rust-web\|llvm\)[^ ]*\)$/\1/p')
    done
    apt-get download "${packages[@]}"
    for deb in *.deb; do dpkg-deb -x "$deb" "$HERE/root"; done
  )
  cp "$(rustc --print sysroot)/lib/rustlib/$TARGET/lib/librustc-stable_rt.tsan.a" "$LIBS/"
  llvm=$(dirname "$(find "$HERE/root" -name 'libLLVM*.so*' | head -1)")
  printf '#!/bin/sh\nLD_LIBRARY_PATH=%s:%s exec %s "$@"\n' \
    "$HERE/root/usr/lib/x86_64-linux-gnu" "$llvm" "$HERE/root/usr/bin/rustc" >"$HERE/rustc"
  chmod +x "$HERE/rustc"
fi

tests=()
for test in "${@:-stress pool}"; do
  for name in $test; do tests+=(--test "$name"); done
done

# TSan does not know fences: `ndpool_tsan` puts a load that acquires before each Acquire fence.
RUSTC="$HERE/rustc" RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=thread --cfg ndpool_tsan" \
  CARGO_INCREMENTAL=0 CARGO_PROFILE_TEST_DEBUG=line-tables-only \
  TSAN_OPTIONS=halt_on_error=1 \
  cargo test -p ndpool -Zbuild-std --target "$TARGET" --target-dir "$HERE/build" "${tests[@]}"
