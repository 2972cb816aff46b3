#!/usr/bin/env python3
"""Planted bugs: is each of them caught by at least two different tools?

Plants one bug at a time in a copy of the crate (which shares its target folder) and runs the tools
over it: loom, shuttle, random bytes through the fuzz targets, and stress on real threads. A tool
catches a bug by failing, or by not ending. Exits with 1 if a bug is caught by fewer than two.

With --fuzz, builds the fuzz target `schedule` with the known leak (`--cfg planted_leak`) as well,
and gives the fuzzer two minutes to find it.

usage: ci/planted.py [--only TEXT] [--tools NAME,...] [--report FILE] [--fuzz] [--list]
"""
import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORK = ROOT / "target/planted"
COPIED = ["Cargo.toml", "Cargo.lock", "README.md", "src", "loom-tests", "tests", "examples", "benches", "integrations", "macros"]
LIMIT = 900  # Seconds for one tool on one bug.

# What it is, kernel file, text, replacement, loom binaries that model it.
BUGS = [
    (
        "the published count's leak", "count.rs",
        "if before == RELEASED && self.claim()", "if false && before == RELEASED",
        ["loom_count"],
    ),
    (
        "no flush at thread exit", "tiers.rs",
        "    // SAFETY: the cache's share keeps the pool alive.\n    unsafe { core.rest_cache(cache) };\n", "",
        ["loom_core"],
    ),
    (
        "a block pushed twice", "rest.rs",
        "        unsafe { self.depot(class).push_block(&self.world().blocks, block) };\n",
        "        unsafe { self.depot(class).push_block(&self.world().blocks, block) };\n"
        "        // SAFETY: none, this is the bug.\n"
        "        unsafe { self.depot(class).push_block(&self.world().blocks, block) };\n",
        ["loom_exchange"],
    ),
    (
        "ABA in the depot: a stack without its tag", "stack.rs",
        "(head & !INDEX_MASK).wrapping_add(TAG_ONE)", "head & !INDEX_MASK",
        ["loom_stack"],
    ),
    (
        "a stale generation accepted", "state.rs",
        "if seen.generation() != generation || seen.is_released() {", "if seen.is_released() {",
        ["loom_state"],
    ),
    (
        "a trim that skips the busy check", "reach.rs",
        "if self.busy.load(Ordering::Acquire) == 0 {", "if self.busy.load(Ordering::Acquire) < 2 {",
        ["loom_reach"],
    ),
    (
        "a closer that asks a cache of an earlier pool to flush", "reach.rs",
        "if vacant { 0 } else { FLUSH }", "FLUSH",
        ["loom_core"],
    ),
]


CHOSEN = []


def tools(loom):
    every = {
        "loom": [word for binary in loom for word in ("--test", binary)],
        "shuttle": ["--test", "shuttle"],
        "random bytes": ["--test", "fuzz_replay"],
        "stress": ["--test", "stress"],
    }
    return {name: words for name, words in every.items() if not CHOSEN or name in CHOSEN}


def cargo(words, limit=None):
    environment = dict(os.environ, CARGO_TARGET_DIR=str(ROOT / "target"), RUST_BACKTRACE="0",
                       NDPOOL_RANDOM_INPUTS="4000", NDPOOL_STRESS_SECONDS="10", CARGO_INCREMENTAL="1")
    command = ["cargo", "test", "-q", "--features", "loom"] + words
    # A group of its own: a test that does not end has to go with its cargo.
    with subprocess.Popen(command, cwd=WORK / "tree", env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, start_new_session=True) as process:
        try:
            output, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def copy():
    tree = WORK / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name)
        elif source.exists():
            shutil.copy(source, tree / name)
    for name in ["src", "corpus"]:
        shutil.copytree(ROOT / "fuzz" / name, tree / "fuzz" / name)
    # The kept input of the leak would find it at once.
    (tree / "fuzz/corpus/schedule/known-leak").unlink(missing_ok=True)


def build(loom):
    built = cargo([word for words in tools(loom).values() for word in words] + ["--no-run"])
    if built.returncode:
        sys.exit("the tree does not build:\n" + built.stderr[-3000:])


def catch(words):
    """How a tool judges the tree: what it says when it catches the bug, or None."""
    try:
        done = cargo(words, LIMIT)
    except subprocess.TimeoutExpired:
        return "does not end"
    return "fails" if done.returncode else None


def leak_is_fuzzed():
    """Seconds until the fuzzer found the leak."""
    found = WORK / "found"
    shutil.rmtree(found, ignore_errors=True)
    found.mkdir(parents=True)
    command = ["cargo", "fuzz", "run", "schedule", "-s", "none", "--target-dir", str(ROOT / "target/fuzz-planted")]
    environment = dict(os.environ, RUSTFLAGS="--cfg planted_leak")
    build = [word if word != "run" else "build" for word in command]
    subprocess.run(build, cwd=ROOT, env=environment, check=True)
    start = time.time()
    arguments = [str(found), "--", "-max_total_time=120", f"-artifact_prefix={found}/"]
    done = subprocess.run(command + arguments, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode == 0 or "told to free" not in done.stderr:
        sys.exit("the fuzzer did not find the planted leak in two minutes:\n" + done.stderr[-2000:])
    return time.time() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--report")
    parser.add_argument("--fuzz", action="store_true")
    parser.add_argument("--tools", default="", help="only these of the tools, parted by `,`")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    CHOSEN.extend(name for name in options.tools.split(",") if name)
    bugs = [bug for bug in BUGS if options.only in bug[0]]
    for what, file, text, *_ in bugs:
        count = (ROOT / "src/kernel" / file).read_text().count(text)
        if count != 1:
            sys.exit(f"{file} contains the text to plant `{what}` in {count} times")
    if options.list:
        print("\n".join(bug[0] for bug in bugs))
        return 0
    copy()
    names = list(tools([]))
    every = sorted({binary for bug in bugs for binary in bug[4]})
    build(every)
    for name, words in tools(every).items():
        if catch(words):
            sys.exit(f"{name} fails without a bug: its verdicts would mean nothing")
    lines = ["| planted bug | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    weak = []
    for what, file, text, replacement, loom in bugs:
        place = WORK / "tree/src/kernel" / file
        good = place.read_text()
        place.write_text(good.replace(text, replacement))
        build(loom)
        verdicts = {name: catch(words) for name, words in tools(loom).items()}
        place.write_text(good)
        caught = sum(verdict is not None for verdict in verdicts.values())
        if caught < 2:
            weak.append(what)
        lines.append(f"| {what} | " + " | ".join(verdicts[name] or "-" for name in names) + " |")
        print(lines[-1], flush=True)
    if options.fuzz:
        lines.append("")
        lines.append(f"The fuzzer found the planted leak in {leak_is_fuzzed():.0f} s.")
        print(lines[-1])
    if options.report:
        pathlib.Path(options.report).write_text("\n".join(lines) + "\n")
    for what in weak:
        print(f"caught by fewer than two tools: {what}")
    return 1 if weak else 0


if __name__ == "__main__":
    sys.exit(main())
