#!/usr/bin/env python3
"""Mutants of the kernel: are the loom models any good?

Weakens every ordering one step, removes every fence, turns compare-and-swaps into a load and a
store, and applies the planted bugs in `PLANTED`; each mutant must be killed by a model. Works on a
copy of the kernel. Prints one line per mutant, writes a table with --report, and exits with 1 if a
mutant survives that is not in `EQUIVALENT`.

Each model runs in a process of its own, and must pass without a mutant first; how long it takes then
sets how long it may take with one. --quick takes the planted bugs and a part of the rest.

usage: ci/mutants.py [--only TEXT] [--models PATTERN] [--quick] [--jobs N] [--report FILE] [--list]
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback

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
    "src/kernel/ledger.rs": ["loom_exchange", "loom_core"],
    "src/kernel/arena.rs": ["loom_arena"],
    "src/kernel/slots.rs": ["loom_slots"],
    "src/kernel/cache.rs": ["loom_exchange", "loom_core", "loom_berth"],
    "src/kernel/berths.rs": ["loom_berth", "loom_core"],
    "src/kernel/trim.rs": ["loom_berth", "loom_core"],
    "src/kernel/room.rs": ["loom_berth", "loom_core"],
    "src/kernel/rest.rs": ["loom_exchange", "loom_core"],
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
    ("src/kernel/trim.rs", "            unsafe { self.rest_cache(cache) };\n            self.restore_cache(cache);", "            self.restore_cache(cache);", "a left cache given back with what is in it"),
    ("src/kernel/room.rs", "        self.in_turn(own, || f(&|| self.make_room(own)))\n            .unwrap_or_else(|| f(&|| self.evict_coldest(None)))\n", "        f(&|| self.make_room(own))\n", "room made out of turn"),
    ("src/kernel/trim.rs", "        self.ledger.vacate(berth.charged);\n", "", "a berth that goes and still counts as resting"),
    ("src/kernel/rest.rs", "        unsafe { self.depot(class).push_magazine(&world.magazines, magazine) };\n        self.settle(class);\n", "        unsafe { self.depot(class).push_magazine(&world.magazines, magazine) };\n", "a magazine left in the depot of a closed pool"),
    ("src/kernel/rest.rs", "        unsafe { self.depot(class).push_block(&self.world().blocks, block) };\n        self.settle(class);\n", "        unsafe { self.depot(class).push_block(&self.world().blocks, block) };\n", "a block left in the depot of a closed pool"),
    ("src/kernel/cache.rs", "if len == shelf.room {\n                return false;", "if len > shelf.room {\n                return false;", "a round beyond the room of a magazine"),
    ("src/kernel/arena.rs", "if slab >= SLABS || fresh as usize >= MAX_CELLS {", "if fresh as usize >= MAX_CELLS {", "an arena beyond its last slab"),
    ("src/kernel/berths.rs", "if credit == 0 || room", "if room", "a berth for who only gives"),
    ("src/kernel/state.rs", "seen.generation() != generation || seen.is_released() {", "seen.is_released() {", "no generation check"),
    ("src/kernel/state.rs", "seen.generation() != generation || seen.is_released() || seen.is_saturated()", "seen.is_released() || seen.is_saturated()", "no generation check in a forced release"),
    ("src/kernel/state.rs", "if seen.generation() != generation || seen.is_released() {", "if seen.generation() != generation {", "upgrade of a released block"),
    ("src/kernel/count.rs", "if before == RELEASED && self.claim()", "if false", "no cure: the compensator does not claim"),
    ("src/kernel/reach.rs", "if self.busy.load(Ordering::Acquire) == 0 {", "if self.busy.load(Ordering::Acquire) < 2 {", "a trim that skips the busy check"),
    ("src/kernel/reach.rs", "before & STEAL == 0\n", "before & STEAL != u32::MAX\n", "an exit that ignores a trimmer"),
    ("src/kernel/reach.rs", "while seen & DEAD == 0 {\n            // Ordering: Release, on", "while seen < u32::MAX {\n            // Ordering: Release, on", "an auditor that gives a left cache back"),
    ("src/kernel/reach.rs", "if seen & STEAL != 0 || !vacant {", "if !vacant {", "an adoption under a trimmer"),
    ("src/kernel/state.rs", "if last == LAST_GENERATION {", "if last > LAST_GENERATION {", "a share after the last generation"),
    ("src/kernel/state.rs", "retire: before.generation() == LAST_GENERATION,", "retire: false,", "no retirement at the last generation"),
    ("src/kernel/state.rs", "retire: generation == LAST_GENERATION,", "retire: false,", "no retirement in a forced release"),
    ("src/kernel/state.rs", "if before.stored() >= OWNERS_LIMIT as i32 - 1 {", "if before.stored() == i32::MAX {", "an owner added without a limit"),
    ("src/kernel/state.rs", "if seen.stored() >= OWNERS_LIMIT as i32 - 1 {", "if seen.stored() == i32::MAX {", "an upgrade without a limit"),
    ("src/kernel/state.rs", "if before.is_saturated() {", "if false {", "a release that lets an immortal word drift"),
    ("src/kernel/state.rs", "|| seen.is_released() || seen.is_saturated() {", "|| seen.is_released() {", "a forced release of an immortal block"),
    ("src/kernel/count.rs", "let next = if seen + 1 >= OWNERS_LIMIT {", "let next = if false {", "a count without a limit"),
    ("src/kernel/count.rs", "            if is_negative(seen) {\n                return Err(Refused);\n            }\n", "", "an add to a released cell"),
    ("src/kernel/lease.rs", "if generation < u64::from(super::tuning::LAST_GENERATION) {", "if generation <= u64::from(super::tuning::LAST_GENERATION) {", "a lease slot that never retires"),
    ("src/kernel/lease.rs", "    if lease.word.load(Ordering::Acquire) != live {\n        return Err(Stray);\n    }\n", "", "no first look at a lease's generation"),
    ("src/kernel/lease.rs", "    if lease.word.load(Ordering::Relaxed) != live {\n        return Err(Stray);\n    }\n", "", "no second look at a lease's generation"),
    ("src/kernel/reserve.rs", ".filter(|&sum| sum <= limit)", ".filter(|&sum| sum <= usize::MAX)", "a charge without a limit"),
    ("src/kernel/ledger.rs", "self.stocked.try_add(bytes as u64, policy.cap as u64)", "self.stocked.try_add(bytes as u64, u64::MAX)", "a depot without its cap"),
    ("src/kernel/core.rs", "Ok(_) if self.life() == life => return true,", "Ok(_) => return true,", "a handle of another life of its core"),
    ("src/kernel/core.rs", "if block.state.load().generation() >= super::tuning::LAST_GENERATION {", "if false {", "a block that dies at its last generation, and is used again"),
    ("src/kernel/core.rs", "if self.has_closed() {\n            self.drain_depot(class);", "if false {\n            self.drain_depot(class);", "who pushes does not look whether the pool has closed"),
    ("src/kernel/tiers.rs", "if cache.bias.renounce() {", "if false {", "a thread that registers does not give up a closed pool's cache"),
]

# Survivors that are no faults, with the reason. (file, text of the mutant's description)
EQUIVALENT = {
    ("src/kernel/state.rs", "an owner added without a limit"):
        "a word at the limit is immortal by its number, and a release writes its middle again; what an add's own look is for, "
        "2^30 more adds without a release, no model can make",
    ("src/kernel/state.rs", "an upgrade without a limit"): "as for an added owner",
    ("src/kernel/count.rs", "a count without a limit"):
        "a count at the limit is immortal by its number; the jump to the middle only keeps it from drifting back",
    ("src/kernel/pagemap.rs", "remove: 0: Release -> Relaxed"):
        "an empty entry publishes nothing: who reads it looks no further",
    ("src/kernel/pagemap.rs", "each: place: Acquire -> Relaxed"):
        "the map is dropped by its only owner, whom something else has ordered after everybody",
    ("src/kernel/core.rs", "open: closed: Release -> Relaxed"):
        "who asks whether a pool is open holds a handle or a block of it, which shows it built",
    ("src/kernel/core.rs", "drop_handle: no fence(Acquire)"):
        "the fence in `close` acquires as well, and in a pool closed before the one in `drop_share`",
    ("src/kernel/core.rs", "is_closed: closed: Acquire -> Relaxed"):
        "as for `open`; and who sees it closed touches nothing but what its own block shows",
    ("src/kernel/core.rs", "close: closed: AcqRel -> Acquire"):
        "the fence behind it orders it against who puts something in; for the rest as for `is_closed`",
    ("src/kernel/core.rs", "close: closed: AcqRel -> Release"):
        "as above; and the closer holds a handle, which shows it the pool",
    ("src/kernel/slots.rs", "ensure_cache: next: Acquire -> Relaxed"):
        "only the slot's thread builds tables, and the slot came to it by a claim, which acquired",
    ("src/kernel/slots.rs", "drop: next: Acquire -> Relaxed"):
        "the slot is dropped by its only owner, whom something else has ordered after everybody",
    ("src/kernel/arena.rs", "ensure: slabs: Acquire -> Relaxed"):
        "a look whether the slab is there; `get` acquires before anything of it is touched",
    ("src/kernel/arena.rs", "link: slabs: Acquire -> Relaxed"):
        "an index comes out of a stack's head, whose load acquires, or from a claim, which did",
    ("src/kernel/arena.rs", "drop: slab: Acquire -> Relaxed"):
        "the arena is dropped by its only owner, whom something else has ordered after everybody",
    ("src/kernel/reach.rs", "steal: request: Acquire -> Relaxed"):
        "the fence of the heavy barrier behind it acquires as well; where there is no barrier, nothing is taken",
    ("src/kernel/reach.rs", "close: request: Acquire -> Relaxed"):
        "as for steal",
    ("src/kernel/reach.rs", "give_back: request: Acquire -> Relaxed on failure"):
        "an owner that finds its cache taken does not touch it before it exits, and what it did earlier "
        "`wait_until_out` has shown",
    ("src/kernel/reach.rs", "bury: request: AcqRel -> Acquire"):
        "a forked child has one thread, which starts every later owner",
    ("src/kernel/reach.rs", "bury: request: AcqRel -> Release"):
        "a forked child has one thread, and fork ordered everything before it",
    ("src/kernel/lease.rs", "end: word: Acquire -> Relaxed"):
        "`peek`, just before, has acquired the same store of the word",
    ("src/kernel/reach.rs", "adopt: request: CAS -> load + store"):
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


OPERATION = r"(\w+)(?:\[[^\]]*\])*\s*\.\s*(?:load|store|swap|fetch_\w+|compare_exchange\w*)\("


def atomic_at(source, position):
    """Name of the atomic that the operation around `position` is on."""
    names = re.findall(OPERATION, source[:position])
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
            # The second ordering of an exchange.
            failure = " on failure" if re.search(r"Ordering::\w+,\s*$", source[:start]) else ""
            atomic = atomic_at(source, start)
            yield Mutant(file, f"{where}: {atomic}: {match[1]} -> {weaker}{failure}", mutated)


def exchanges(file, source):
    """A CAS becomes a load, a comparison and a store (a swap, as loom wants it)."""
    for match in re.finditer(r"\.compare_exchange(_weak)?\(", product(source)):
        depth, at = 1, match.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(source[at], 0)
            at += 1
        arguments = source[match.end():at - 1]
        line = source.count("\n", 0, match.start()) + 1
        where = f"{function_at(source, match.start())}, line {line}: {atomic_at(source, match.end())}"
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
    """All of them; an explanation of a mutant that does not exist is an error."""
    every = list(drawn_mutants())
    known = {(mutant.file, key(mutant)) for mutant in every}
    for stale in EQUIVALENT.keys() - known:
        sys.exit(f"EQUIVALENT explains what is no mutant: {stale}")
    return every


def key(mutant):
    return re.sub(r", line \d+", "", mutant.what)


def drawn_mutants():
    for file in MODELS:
        source = (ROOT / file).read_text()
        if "loom_model" not in file:
            yield from orderings(file, source)
            yield from exchanges(file, source)
    for file, text, replacement, what in PLANTED:
        source = (ROOT / file).read_text()
        if source.count(text) != 1:
            sys.exit(f"{file} contains the text to plant `{what}` in {source.count(text)} times")
        yield Mutant(file, what, source.replace(text, replacement))


# A crate of the kernel under loom and nothing else, so that a mutant builds in seconds.
MANIFEST = """[package]
name = "ndpool"
version = "0.0.0"
edition = "2024"

[features]
loom = []

[dependencies]
loom = "{loom}"
thiserror = "2"

[profile.test]
opt-level = 1
debug = 0

[profile.test.package.loom]
opt-level = 3

[lints.rust]
warnings = "allow"

[workspace]
"""
LIBRARY = """pub mod class;
mod constants;
pub mod loom_model;
mod os {
    pub fn membarrier() -> bool {
        true
    }
    pub fn has_membarrier() -> bool {
        true
    }
}
mod sync;
"""
TEST = """
[[test]]
name = "{name}"
path = "{path}"
"""


def copy_to(folder):
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "src").mkdir(parents=True)
    manifest = (ROOT / "Cargo.toml").read_text()
    loom = re.search(r'^loom = \{ version = "([^"]*)"', manifest, re.M)[1]
    tests = re.findall(r'name = "(loom_\w+)"\npath = "([^"]+)"', manifest)
    (folder / "Cargo.toml").write_text(
        MANIFEST.format(loom=loom) + "".join(TEST.format(name=name, path=path) for name, path in tests))
    (folder / "src/lib.rs").write_text(LIBRARY)
    shutil.copy(ROOT / "Cargo.lock", folder)
    for name in ["class.rs", "constants.rs", "sync.rs"]:
        shutil.copy(ROOT / "src" / name, folder / "src")
    shutil.copytree(ROOT / "src/loom_model", folder / "src/loom_model")
    shutil.copytree(ROOT / "loom-tests", folder / "loom-tests")
    # The other kernels do not know the torn exchange, so mutate in a kernel of loom's own.
    shutil.copytree(ROOT / "src/kernel", folder / "src/loom_model/kernel")
    model = folder / "src/loom_model/mod.rs"
    model.write_text(model.read_text().replace('#[path = "../kernel/mod.rs"]\n', ""))
    facade = folder / "src/loom_model/sync.rs"
    text = facade.read_text()
    swap = text.index("        /// See std.\n        #[track_caller]\n        pub fn swap")
    end = text.index("-> $ty {", swap) + len("-> $ty {")
    facade.write_text(text[:swap] + TORN.lstrip("\n") + text[end:])


BROKEN = "DOES NOT BUILD, and so proves nothing"


class Faulty(Exception):
    """The campaign itself is at fault."""


class Bench:
    """A copy of the crate, in which one mutant at a time is built and run."""

    def __init__(self, folder):
        self.folder = folder
        copy_to(folder)
        # Seconds that each model takes without a mutant, and the models that have killed one.
        self.taken, self.killers = {}, []
        # Pattern of the models to run.
        self.only = ""

    def build(self, binary):
        """Path of a test binary, or None, with the compiler's words."""
        environment = dict(os.environ, CARGO_INCREMENTAL="1", CARGO_TARGET_DIR=str(self.folder) + "-target")
        command = ["cargo", "test", "-q", "--test", binary, "--no-run", "--message-format=json"]
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True)
        if done.returncode:
            errors = [json.loads(line).get("message", {}) for line in done.stdout.splitlines()]
            return None, "".join(error.get("rendered", "") for error in errors) + done.stderr
        for line in done.stdout.splitlines():
            artifact = json.loads(line)
            if artifact.get("executable") and artifact["target"]["name"] == binary:
                return artifact["executable"], ""
        raise Faulty(f"cargo names no executable for {binary}")

    def models(self, executable):
        listed = subprocess.run([executable, "--list"], cwd=self.folder, capture_output=True, text=True, check=True)
        return [model for model in re.findall(r"^(\S+): test$", listed.stdout, re.M) if re.search(self.only, model)]

    def one(self, executable, model, limit=None):
        """Runs one model in a process of its own: True if it passes; None if it does not end."""
        environment = dict(os.environ, RUST_BACKTRACE="0")
        command = [executable, "--exact", model, "--test-threads=1"]
        process = subprocess.Popen(command, cwd=self.folder, env=environment, start_new_session=True,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            return process.wait(limit) == 0
        except subprocess.TimeoutExpired:
            # With the child that a model which must fail has started.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return None

    def baseline(self, binary):
        """All models of a binary must pass without a mutant."""
        executable, said = self.build(binary)
        if executable is None:
            raise Faulty(f"{binary} does not build without a mutant:\n{said[-4000:]}")
        for model in self.models(executable):
            start = time.time()
            if not self.one(executable, model):
                raise Faulty(f"{binary}::{model} fails without a mutant")
            self.taken[binary, model] = time.time() - start

    def kill(self, binaries):
        """The name of a model that fails, or None. Tries the quick ones first, and before those the
        ones that have killed already."""
        for binary in binaries:
            executable, said = self.build(binary)
            if executable is None:
                print(said[-2000:], file=sys.stderr)
                return BROKEN
            models = sorted(self.models(executable), key=lambda model: self.taken[binary, model])
            models.sort(key=lambda model: (binary, model) not in self.killers[-4:])
            for model in models:
                passed = self.one(executable, model, 30 + 20 * self.taken[binary, model])
                if not passed:
                    self.killers.append((binary, model))
                    return f"{binary}::{model}" + (" (does not end)" if passed is None else "")
        return None

    def judge(self, mutant):
        """Applies a mutant, and takes it back."""
        target = self.folder / mutant.file.replace("src/kernel", "src/loom_model/kernel")
        good = target.read_text()
        if "loom_model/sync" in mutant.file:
            text = next(p for p in PLANTED if p[3] == mutant.what)
            target.write_text(good.replace(text[1], text[2]))
        else:
            target.write_text(mutant.source)
        killer = self.kill(MODELS[mutant.file])
        target.write_text(good)
        return killer


def campaign(items, benches, do, report):
    """Does `do(bench, item)` for all items, on several benches at once; (item, result) in their order."""
    waiting, done, lock = list(enumerate(items)), {}, threading.Lock()

    def work(bench):
        while True:
            with lock:
                if not waiting:
                    return
                index, item = waiting.pop(0)
            try:
                result = do(bench, item)
            except Exception:
                traceback.print_exc()
                os._exit(2)  # What the others find out would mean nothing.
            with lock:
                done[index] = result
                report(item, result)

    threads = [threading.Thread(target=work, args=[bench]) for bench in benches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [(item, done[index]) for index, item in enumerate(items)]


def part_of_the_day():
    """Where --quick begins: another one each day, so that all have their turn."""
    return datetime.date.today().toordinal() % QUICK


def explained(mutant):
    return EQUIVALENT.get((mutant.file, key(mutant)))


def verdict(mutant, killer):
    if killer == BROKEN:
        return BROKEN
    reason = explained(mutant)
    if killer:
        return f"killed by {killer}" + (", though EQUIVALENT explains it" if reason else "")
    return f"equivalent: {reason}" if reason else "SURVIVES"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="mutants whose file or description contains this, or one of these, parted by `|`")
    parser.add_argument("--report", help="write a markdown table here")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--work", default=str(ROOT / "target/mutants"), help="folder to work in")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at once, each in a folder of its own")
    parser.add_argument("--models", default="", help="run only models that match this: to see whether one kills, not what survives")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    parts = options.only.split("|")
    chosen = [m for m in mutants() if any(part in f"{m.file} {m.what}" for part in parts)]
    if options.quick:
        planted = {bug[3] for bug in PLANTED}
        others = [m for m in chosen if m.what not in planted]
        chosen = [m for m in chosen if m.what in planted] + others[part_of_the_day()::QUICK]
    if options.list:
        for mutant in chosen:
            print(mutant.file, "|", mutant.what)
        print(len(chosen), "mutants")
        return 0
    for name in ["NDPOOL_MODEL_SECONDS", "NDPOOL_MODEL_BOUND"]:
        os.environ.pop(name, None)  # An unfinished search would let mutants survive.
    start = time.time()
    benches = [Bench(pathlib.Path(options.work).resolve() / str(job)) for job in range(options.jobs)]
    binaries = sorted({binary for mutant in chosen for binary in MODELS[mutant.file]})

    taken = {}
    for bench in benches:
        bench.taken, bench.only = taken, options.models
    campaign(binaries, benches, Bench.baseline, lambda *_: None)
    print(f"{len(taken)} models pass without a mutant, {time.time() - start:.0f} s", flush=True)

    def report(mutant, killer):
        print(f"{mutant.file}: {mutant.what}: {verdict(mutant, killer)}", flush=True)

    rows = campaign(chosen, benches, Bench.judge, report)
    survivors = sum(killer == BROKEN or not killer and not explained(mutant) for mutant, killer in rows)
    if options.report:
        lines = ["| file | mutant | verdict |", "|---|---|---|"]
        lines += [f"| {mutant.file} | {mutant.what} | {verdict(mutant, killer)} |" for mutant, killer in rows]
        pathlib.Path(options.report).write_text("\n".join(lines) + "\n")
    killed = sum(killer not in (None, BROKEN) for _, killer in rows)
    print(f"{len(rows)} mutants, {killed} killed, {survivors} unexplained survivors, {time.time() - start:.0f} s")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
