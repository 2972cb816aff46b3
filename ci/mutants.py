#!/usr/bin/env python3
"""Mutants of the kernel: are the loom models any good?

Weakens every ordering one step, removes every fence, turns compare-and-swaps into a load and a
store, and applies the planted bugs in `PLANTED`; each mutant must be killed by a model. Works on a
copy of the crate. Prints one line per mutant, writes a table with --report, and exits with 1 if a
mutant survives that is not in `EQUIVALENT`.

Each binary of models must pass without a mutant first; how long it takes then sets how long it may
take with one. --quick takes the planted bugs and a part of the rest.

usage: ci/mutants.py [--only TEXT] [--quick] [--report FILE] [--list]
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Kernel file -> the loom test binaries whose models are to kill its mutants.
MODELS = {
    "src/kernel/state.rs": ["loom_state"],
    "src/kernel/count.rs": ["loom_count"],
    "src/kernel/stack.rs": ["loom_stack"],
    "src/kernel/lease.rs": ["loom_lease"],
    "src/kernel/reach.rs": ["loom_reach"],
    "src/kernel/core.rs": ["loom_core"],
    "src/kernel/tiers.rs": ["loom_core", "loom_exchange"],
    "src/kernel/arena.rs": ["loom_arena"],
    "src/kernel/slots.rs": ["loom_core", "loom_exchange"],
    "src/kernel/cache.rs": ["loom_exchange", "loom_core"],
    "src/kernel/reserve.rs": ["loom_reserve"],
    "src/kernel/pagemap.rs": ["loom_pagemap"],
    "src/loom_model/sync.rs": ["loom_reach"],
}

# Of the mutants that are not planted bugs, --quick takes one in so many.
QUICK = 12

WEAKER = {
    "Acquire": ["Relaxed"],
    "Release": ["Relaxed"],
    "AcqRel": ["Acquire", "Release"],
}

# (file, text, replacement, what it is)
PLANTED = [
    ("src/loom_model/sync.rs", "// Ordering: SeqCst - stands for what the other half makes this thread execute.\n    fence(Ordering::SeqCst);", "", "no light barrier"),
    ("src/loom_model/sync.rs", "// Ordering: SeqCst - the pair of the fence in `light_barrier`.\n    fence(Ordering::SeqCst);", "", "no heavy barrier"),
    ("src/kernel/stack.rs", "(head & !INDEX_MASK).wrapping_add(TAG_ONE)", "head & !INDEX_MASK", "no tag"),
    ("src/kernel/state.rs", "seen.generation() != generation || seen.is_released()", "seen.is_released()", "no generation check"),
    ("src/kernel/state.rs", "seen.generation() != generation || seen.is_released() || seen.is_saturated()", "seen.is_released() || seen.is_saturated()", "no generation check in a forced release"),
    ("src/kernel/state.rs", "if seen.generation() != generation || seen.is_released() {", "if seen.generation() != generation {", "upgrade of a released block"),
    ("src/kernel/count.rs", "if before == RELEASED && self.claim()", "if false", "no cure: the compensator does not claim"),
    ("src/kernel/reach.rs", "if self.busy.load(Ordering::Acquire) == 0 {", "if self.busy.load(Ordering::Acquire) < 2 {", "a trim that skips the busy check"),
    ("src/kernel/reach.rs", "before & STEAL == 0\n", "before & STEAL != u32::MAX\n", "an exit that ignores a trimmer"),
    ("src/kernel/reach.rs", "while seen & DEAD == 0 {\n            // Ordering: Release, on", "while seen < u32::MAX {\n            // Ordering: Release, on", "an auditor that gives a left cache back"),
    ("src/kernel/reach.rs", "if seen & STEAL != 0 || !vacant {", "if !vacant {", "an adoption under a trimmer"),
]

# Survivors that are no faults, with the reason. (file, text of the mutant's description)
EQUIVALENT = {
    ("src/kernel/pagemap.rs", "remove: Release -> Relaxed"):
        "an empty entry publishes nothing: who reads it looks no further",
    ("src/kernel/pagemap.rs", "each: Acquire -> Relaxed"):
        "the map is dropped by its only owner, whom something else has ordered after everybody",
    ("src/kernel/reach.rs", "steal: Acquire -> Relaxed"):
        "the fence of the heavy barrier behind it acquires as well; where there is no barrier, nothing is taken",
    ("src/kernel/reach.rs", "close: Acquire -> Relaxed"):
        "as for steal",
    ("src/kernel/reach.rs", "adopt: CAS -> load + store"):
        "only the slot's thread adopts, and a mark of the closer that it overwrites is made again by `renounce`, "
        "after the fence of `Core::register`",
}


class Mutant:
    def __init__(self, file, what, source):
        self.file, self.what, self.source = file, what, source


def product(source):
    return source.split("#[cfg(test)]\nmod ")[0]


def function_at(source, position):
    names = re.findall(r"\bfn (\w+)", source[:position])
    return names[-1] if names else "?"


def orderings(file, source):
    for match in re.finditer(r"Ordering::(Acquire|Release|AcqRel|SeqCst)\b", product(source)):
        start, end = match.span()
        line_start = source.rfind("\n", 0, start) + 1
        if source[line_start:start].strip().startswith("//"):
            continue
        line = source.count("\n", 0, start) + 1
        where = f"{function_at(source, start)}, line {line}"
        before = source[:start].rstrip()
        if before.endswith("fence("):
            open_at = before.rfind("fence(")
            close_at = source.index(")", end) + 1
            yield Mutant(file, f"{where}: no fence({match[1]})", source[:open_at] + "()" + source[close_at:])
            continue
        for weaker in WEAKER.get(match[1], []):
            is_store = re.search(r"\.store\([^;]*$", source[max(0, start - 80):start])
            is_load = re.search(r"\.load\($", source[max(0, start - 40):start])
            if (is_store and weaker == "Acquire") or (is_load and weaker == "Release"):
                continue
            mutated = source[:start] + f"Ordering::{weaker}" + source[end:]
            yield Mutant(file, f"{where}: {match[1]} -> {weaker}", mutated)


def exchanges(file, source):
    """A CAS becomes a load, a comparison and a store (a swap, as loom wants it)."""
    for match in re.finditer(r"\.compare_exchange(_weak)?\(", product(source)):
        depth, at = 1, match.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(source[at], 0)
            at += 1
        arguments = source[match.end():at - 1]
        line = source.count("\n", 0, match.start()) + 1
        where = f"{function_at(source, match.start())}, line {line}"
        mutated = source[:match.start()] + f".torn_exchange({arguments})" + source[at:]
        yield Mutant(file, f"{where}: CAS -> load + store", mutated)


TORN = """
        /// Mutant: an exchange in two steps.
        pub fn torn_exchange(
            &self,
            current: $ty,
            new: $ty,
            success: Ordering,
            failure: Ordering,
        ) -> Result<$ty, $ty> {
            let seen = self.load(failure);
            if seen == current { Ok(self.swap(new, success)) } else { Err(seen) }
        }

        /// See std.
        #[track_caller]
        pub fn swap(&self, value: $ty, order: Ordering) -> $ty {"""


def mutants():
    for file in MODELS:
        source = (ROOT / file).read_text()
        if "loom_model" not in file:
            yield from orderings(file, source)
            yield from exchanges(file, source)
    for file, text, replacement, what in PLANTED:
        source = (ROOT / file).read_text()
        if text not in source:
            sys.exit(f"{file} does not contain the text to plant `{what}` in")
        yield Mutant(file, what, source.replace(text, replacement))


def copy_to(folder):
    for name in ["Cargo.toml", "Cargo.lock", "README.md", "src", "loom-tests", "benches", "examples", "tests", "macros"]:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, dirs_exist_ok=True)
        elif source.exists():
            shutil.copy(source, folder / name)
    # Shuttle is not needed here, and takes a while to build.
    manifest = folder / "Cargo.toml"
    manifest.write_text(manifest.read_text().replace('ndpool = { path = ".", features = ["ndarray", "shuttle"] }', ""))
    # The other kernels do not know the torn exchange, so mutate in a kernel of loom's own.
    shutil.copytree(folder / "src/kernel", folder / "src/loom_model/kernel", dirs_exist_ok=True)
    model = folder / "src/loom_model/mod.rs"
    model.write_text(model.read_text().replace('#[path = "../kernel/mod.rs"]\n', ""))
    facade = folder / "src/loom_model/sync.rs"
    text = facade.read_text()
    swap = text.index("        /// See std.\n        #[track_caller]\n        pub fn swap")
    end = text.index("-> $ty {", swap) + len("-> $ty {")
    facade.write_text(text[:swap] + TORN.lstrip("\n") + text[end:])


def cargo(folder, binary, words, limit=None):
    # What the crate depends on is built in its own target folder already.
    environment = dict(os.environ, CARGO_INCREMENTAL="1", CARGO_TARGET_DIR=str(ROOT / "target"), RUST_BACKTRACE="0")
    command = ["cargo", "test", "-q", "--features", "loom", "--test", binary] + words
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=limit)


def baseline(folder, binaries):
    """Seconds that each binary takes without a mutant; all of them must pass."""
    taken = {}
    for binary in binaries:
        cargo(folder, binary, ["--no-run"])
        start = time.time()
        done = cargo(folder, binary, ["--", "--test-threads=1"])
        if done.returncode:
            sys.exit(f"{binary} fails without a mutant:\n{done.stdout}{done.stderr}"[-4000:])
        taken[binary] = time.time() - start
    return taken


BROKEN = "DOES NOT BUILD, and so proves nothing"


def run(folder, binaries, taken):
    """The name of a model that fails, or None."""
    for binary in binaries:
        if not (folder / "loom-tests" / (binary.removeprefix("loom_") + ".rs")).exists():
            continue
        build = cargo(folder, binary, ["--no-run"])
        if build.returncode:
            print(build.stderr[-2000:], file=sys.stderr)
            return BROKEN
        try:
            done = cargo(folder, binary, ["--", "--test-threads=1"], 60 + 20 * taken[binary])
        except subprocess.TimeoutExpired:
            return f"{binary} (does not end)"
        if done.returncode:
            said = done.stdout + done.stderr
            failed = re.findall(r"thread '(\w+)'", said) or re.findall(r"test (\w+) \.\.\. FAILED", said)
            return f"{binary}::{failed[0]}" if failed else f"{binary} (aborts)"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="mutants whose file or description contains this")
    parser.add_argument("--report", help="write a markdown table here")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--work", help="folder to work in (kept), instead of a temporary one")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    chosen = [m for m in mutants() if options.only in f"{m.file} {m.what}"]
    if options.quick:
        planted = {bug[3] for bug in PLANTED}
        others = [m for m in chosen if m.what not in planted]
        chosen = [m for m in chosen if m.what in planted] + others[::QUICK]
    if options.list:
        for mutant in chosen:
            print(mutant.file, "|", mutant.what)
        print(len(chosen), "mutants")
        return 0
    folder = pathlib.Path(options.work or tempfile.mkdtemp(prefix="ndpool-mutants-"))
    folder.mkdir(exist_ok=True)
    copy_to(folder)
    rows, survivors, start = [], 0, time.time()
    taken = baseline(folder, sorted({binary for mutant in chosen for binary in MODELS[mutant.file]}))
    for mutant in chosen:
        target = folder / mutant.file.replace("src/kernel", "src/loom_model/kernel")
        good = target.read_text()
        if "loom_model/sync" in mutant.file:
            text = next(p for p in PLANTED if p[3] == mutant.what)
            target.write_text(good.replace(text[1], text[2]))
        else:
            target.write_text(mutant.source)
        killer = run(folder, MODELS[mutant.file], taken)
        target.write_text(good)
        reason = EQUIVALENT.get((mutant.file, re.sub(r", line \d+", "", mutant.what)))
        verdict = BROKEN if killer == BROKEN else f"killed by {killer}" if killer else f"equivalent: {reason}" if reason else "SURVIVES"
        survivors += killer == BROKEN or not killer and not reason
        rows.append((mutant.file, mutant.what, verdict))
        print(f"{mutant.file}: {mutant.what}: {verdict}", flush=True)
    if not options.work:
        shutil.rmtree(folder)
    if options.report:
        lines = ["| file | mutant | verdict |", "|---|---|---|"] + [f"| {a} | {b} | {c} |" for a, b, c in rows]
        pathlib.Path(options.report).write_text("\n".join(lines) + "\n")
    print(f"{len(rows)} mutants, {survivors} unexplained survivors, {time.time() - start:.0f} s")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
