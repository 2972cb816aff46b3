#!/usr/bin/env bash
# The long campaigns, some hours on two cores: deep models, all mutants, planted bugs, TSan,
# ASan with LSan, long stress, ten minutes of every fuzz target. Unlike .ci/run it skips nothing:
# what is not there is installed, or the step fails. Steps go on after a failure; the exit code is
# the number of steps that failed. Logs and reports are in target/deep/.
#
#   ci/deep.sh              all steps
#   ci/deep.sh NAME...      only these
#   FUZZ_SECONDS=60 STRESS_SECONDS=60 SHUTTLE_RUNS=1000 MODEL_SECONDS=10      shorter
set -uo pipefail
cd "$(dirname "$0")/.."

readonly FUZZ_SECONDS=${FUZZ_SECONDS:-600} STRESS_SECONDS=${STRESS_SECONDS:-300}
readonly SHUTTLE_RUNS=${SHUTTLE_RUNS:-100000} MODEL_SECONDS=${MODEL_SECONDS:-120}
readonly TARGET=x86_64-unknown-linux-gnu OUT=target/deep
mkdir -p "$OUT"
commit=$(git rev-parse --short HEAD)$(git diff --quiet HEAD || echo +)
wanted=" $* "
steps=0
failed=()

# step NAME COMMAND...: runs one step, keeps its output, tells its time and how it ended.
step() {
  local name=$1 began=$SECONDS verdict=passed unfinished
  shift
  if [[ $wanted != "  " && $wanted != *" $name "* ]]; then return; fi
  steps=$((steps + 1))
  if ! "$@" >"$OUT/$name.log" 2>&1; then
    verdict=FAILED
    failed+=("$name")
    tail -n 30 "$OUT/$name.log"
  fi
  unfinished=$(grep -c UNFINISHED "$OUT/$name.log")
  if ((unfinished > 0)); then verdict+=", $unfinished searches not finished"; fi
  printf '%6d s  %s  %-16s %s\n' $((SECONDS - began)) "$commit" "$name" "$verdict" | tee -a "$OUT/steps.txt"
}

# Optimised, but with what the debug build checks.
checked() {
  CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true \
    cargo test -p ndpool --release --target-dir target/checked "$@"
}

# Every model at this bound of preemptions, also those that are held to a lower one in `.ci/run`, each mode
# for that long; the log says which searches were not finished.
models() {
  NDPOOL_MODEL_BOUND=$1 NDPOOL_MODEL_SECONDS=$MODEL_SECONDS \
    checked --features loom --test 'loom_*' -- --show-output
}

shuttle() { NDPOOL_SHUTTLE_RUNS=$SHUTTLE_RUNS checked --test shuttle; }

mutants() { python3 ci/mutants.py --jobs 2 --report "$OUT/mutants.md"; }

planted() { python3 ci/planted.py --fuzz --report "$OUT/planted.md"; }

stress() { NDPOOL_STRESS_SECONDS=$STRESS_SECONDS checked --test stress; }

# Generations that end soon: blocks retire in masses on real threads.
narrow() {
  NDPOOL_STRESS_SECONDS=$STRESS_SECONDS RUSTFLAGS="--cfg ndpool_narrow" \
    cargo test -p ndpool --release --target-dir target/narrow --test stress
}

# The long variants of the field cases.
night() { NDPOOL_NIGHTLY=1 cargo test -p ndpool --release --test 'field_*' --test fork --test diagnosis; }

# The whole suite, and then the stress for long, with AddressSanitizer and LeakSanitizer. Left out:
# resident memory, which is the sanitizer's own there; faults that a test wants to see as a signal; tests
# that call cargo; one that reinterprets a part of a block whose layout the sanitizer knows. Its allocator
# refuses no impossible size by itself, and has a stride of its own. Shuttle, and the suite for allocators
# before a broken one, leak on purpose.
asan() (
  export RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address
  export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1
  export LSAN_OPTIONS=suppressions=$PWD/$OUT/lsan.supp CARGO_PROFILE_TEST_DEBUG=line-tables-only
  printf 'leak:%s\n' shuttle_engine hostile::Broken >"$OUT/lsan.supp"
  local -a under=(-p ndpool --target "$TARGET" --target-dir target/asan --features allocator-api2,ndarray)
  cargo test --no-fail-fast "${under[@]}" --lib --tests -- \
    --skip resident --skip a_burst_goes_back --skip one_trim_empties --skip past_the_end \
    --skip json_has_exactly --skip bad_command_lines \
    --skip footprint_of_the_heap --skip a_reinterpreted_part_of_a_narrow_block &&
    NDPOOL_STRESS_SECONDS=$STRESS_SECONDS cargo test "${under[@]}" --test stress
)

# The pool's poison told to AddressSanitizer. Not with the suite: `diagnosis` plants stale writes, which
# end the process then.
asan_poison() (
  export RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address --cfg ndpool_asan"
  cargo test -p ndpool --target "$TARGET" --target-dir target/asan --test asan --test quarantine
)

tsan() { NDPOOL_STRESS_SECONDS=$STRESS_SECONDS ci/tsan.sh stress pool reuse turns field_limits; }

# New inputs go to fuzz/found/; the kept ones in fuzz/corpus/ are read.
fuzz() {
  command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz || return
  local target=$1 sanitizer=address
  # Its faults are in the order of operations, not at addresses, and shuttle's stacks are its own.
  [[ $target == schedule ]] && sanitizer=none
  mkdir -p "fuzz/found/$target"
  RUSTC_BOOTSTRAP=1 cargo fuzz run -s "$sanitizer" "$target" \
    "fuzz/found/$target" "fuzz/corpus/$target" -- \
    -max_total_time="$FUZZ_SECONDS" -rss_limit_mb=4096 -print_final_stats=1
}

step models-3 models 3
step models-4 models 4
step shuttle shuttle
step stress stress
step narrow narrow
step night night
step asan asan
step asan-poison asan_poison
step tsan tsan
for target in lifecycle class threads schedule array; do
  [[ -e fuzz/fuzz_targets/$target.rs ]] && step "fuzz-$target" fuzz "$target"
done
step planted planted
step mutants mutants

if ((steps == 0)); then
  echo "deep: no step of that name:$wanted" >&2
  exit 2
fi
echo "deep: ${#failed[@]} steps failed${failed[*]:+: ${failed[*]}}; $SECONDS s"
exit "${#failed[@]}"
