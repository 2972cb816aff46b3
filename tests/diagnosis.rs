//! Planted faults, each reported with the right kind, class and site, and each with a correct twin
//! that reports nothing. `docs/diagnosis.md` has them as a table.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::mem;
use std::process::{Command, Output};
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use ndpool::allocator::Limited;
use ndpool::report::{self, Report};
use ndpool::{BufferAllocator, Checks, History, LeakLevel, Pool, Site, Token, class};

static REPORTS: Mutex<Vec<Report>> = Mutex::new(Vec::new());

/// Makes the tests take turns, since memory that one gives back may be another's next, and collects
/// what is reported while it is kept.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    static ONCE: Once = Once::new();
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    ONCE.call_once(|| {
        report::set_hook(|report| {
            eprintln!("{report}");
            REPORTS.lock().expect("a whole list").push(report.clone());
        });
    });
    REPORTS.lock().expect("a whole list").clear();
    turn
}

/// What was reported since the last call.
fn reports() -> Vec<Report> {
    mem::take(&mut *REPORTS.lock().expect("a whole list"))
}

fn pool(checks: Checks) -> Pool {
    Pool::builder().checks(checks).build()
}

#[track_caller]
fn is_in(site: &Option<Site>, function: &str) {
    let caller = site.as_ref().expect("a site").caller();
    assert!(caller.contains(function), "{caller} is not in {function}");
    assert!(caller.contains("diagnosis.rs:"), "{caller} has no line");
}

/// Runs one test of this binary in a process of its own.
fn child(test: &str, check: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command
        .env("NDPOOL_PLANTED", "1")
        .env("NDPOOL_CHECK", check);
    command.output().expect("a child")
}

fn is_child() -> bool {
    std::env::var_os("NDPOOL_PLANTED").is_some()
}

// --- a write one past the end ---

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod past_the_end {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    /// One store, at a place that a test can tell.
    #[inline(never)]
    extern "C" fn store(place: *mut u8) {
        // SAFETY: none where the place is the fault that is planted.
        unsafe { place.write_volatile(1) };
    }

    /// Tells where the fault is, and lets it happen again, this time deadly.
    extern "C" fn tell(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: what the kernel passes to a handler.
        let info = unsafe { &*info };
        // SAFETY: as above, for a fault.
        let address = unsafe { info.si_addr() }.addr();
        // SAFETY: as above.
        let context = unsafe { &*context.cast::<libc::ucontext_t>() };
        let instruction = context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
        let within = instruction.wrapping_sub(store as *const () as usize);
        println!("fault at {address:#x}, {within} bytes into the store");
    }

    fn plant(offset: usize) {
        let pool = pool(Checks::new().guard());
        let mut buffer = pool.zeroed::<u8>(1000).expect("memory");
        let place = buffer.as_mut_ptr().wrapping_add(offset);
        println!("store at {place:p}");
        // SAFETY: a zeroed action is a valid one.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = tell as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESETHAND;
        // SAFETY: a valid action; the child does nothing else.
        unsafe { libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()) };
        store(place);
        drop(buffer);
        assert_eq!(pool.close_checked(), Ok(()));
    }

    #[test]
    fn a_write_past_the_end_faults_at_the_instruction() {
        let _turn = turn();
        if is_child() {
            return plant(1000);
        }
        let output = child(
            "past_the_end::a_write_past_the_end_faults_at_the_instruction",
            "",
        );
        let told = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{told}");
        let at = |before: &str, after: &str| {
            let from = told
                .find(before)
                .unwrap_or_else(|| panic!("no {before} in {told}"));
            let rest = &told[from + before.len()..];
            rest[..rest.find(after).expect("an end")].to_owned()
        };
        assert_eq!(at("store at ", "\n"), at("fault at ", ","), "{told}");
        let within: usize = at(", ", " bytes into the store").parse().expect("near it");
        assert!(within < 64, "{told}");
    }

    #[test]
    fn a_write_of_the_last_element_does_not() {
        let _turn = turn();
        if is_child() {
            return plant(999);
        }
        let output = child("past_the_end::a_write_of_the_last_element_does_not", "");
        assert!(output.status.success(), "{output:?}");
    }

    #[test]
    fn a_read_after_the_release_faults_while_the_buffer_is_in_quarantine() {
        let _turn = turn();
        if is_child() {
            let pool = pool(Checks::new().guard().quarantine(1 << 20));
            let buffer = pool.zeroed::<u8>(1000).expect("memory");
            let place = buffer.as_ptr();
            drop(buffer);
            // SAFETY: none: the fault that is planted.
            println!("{}", unsafe { place.read_volatile() });
            return;
        }
        let output = child(
            "past_the_end::a_read_after_the_release_faults_while_the_buffer_is_in_quarantine",
            "",
        );
        assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{output:?}");
    }
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
mod beside_the_buffer {
    use super::*;

    /// A block of 1001 bytes at an alignment of 64, of which a byte is written.
    #[inline(never)]
    fn plant(offset: isize) -> Vec<Report> {
        let pool = pool(Checks::new().guard().backtraces(1));
        let layout = Layout::from_size_align(1001, 64).expect("a layout");
        let block = BufferAllocator::allocate(&pool, layout).expect("memory");
        assert_eq!(block.len(), 1001);
        let base = block.cast::<u8>();
        // SAFETY: in the pages of the block, though beside it where that is the fault.
        unsafe { base.as_ptr().wrapping_offset(offset).write(7) };
        // SAFETY: from this pool with this layout.
        unsafe { pool.deallocate(base, layout) };
        reports()
    }

    #[test]
    fn a_write_between_the_buffer_and_its_guard_is_reported() {
        let _turn = turn();
        for planted in [1001, 1005, -1] {
            let found = plant(planted);
            let [
                Report::WrittenOutside {
                    offset,
                    found,
                    capacity,
                    history,
                    ..
                },
            ] = &found[..]
            else {
                panic!("{found:?}");
            };
            assert_eq!((*offset, *found, *capacity), (planted, 7, 1001));
            is_in(&history.allocated, "plant");
            is_in(&history.released, "plant");
        }
        for inside in [0, 1000] {
            assert_eq!(plant(inside), []);
        }
    }

    #[test]
    fn guarded_blocks_are_lent_and_come_back_by_address() {
        let _turn = turn();
        let pool = pool(Checks::new().guard().leaks(LeakLevel::All));
        for (size, align) in [(1, 1), (5, 1), (100, 4), (1000, 8), (5000, 1), (100, 256)] {
            let layout = Layout::from_size_align(size, align).expect("a layout");
            assert_eq!(pool.capacity(layout), size);
            let block = BufferAllocator::allocate_zeroed(&pool, layout).expect("memory");
            let base = block.cast::<u8>();
            assert!(base.addr().get().is_multiple_of(align));
            // SAFETY: lent, `size` bytes long and zero.
            let last = unsafe { base.as_ptr().wrapping_add(size - 1).read() };
            assert_eq!(last, 0);
            let twice = Layout::from_size_align(2 * size, align).expect("a layout");
            // SAFETY: lent by this pool with this layout.
            let grown = unsafe { pool.grow(base, layout, twice) }.expect("memory");
            assert_eq!(grown.len(), 2 * size);
            // SAFETY: lent by this pool with this layout.
            unsafe { pool.deallocate(grown.cast(), twice) };
            assert_eq!(reports(), []);
            // SAFETY: none: the misuse is the test; the block is gone, and its place in the map.
            unsafe { pool.deallocate(grown.cast(), twice) };
            let address = grown.cast::<u8>().addr().get();
            assert_eq!(reports(), [Report::ForeignPointer { address }]);
        }
        assert_eq!(pool.close_checked(), Ok(()));
    }

    #[test]
    fn guarded_buffers_are_as_other_buffers() {
        let _turn = turn();
        let pool = pool(Checks::new().guard());
        for len in [0, 1, 7, 4096, 4097, 3_000_000] {
            let mut words = pool.zeroed::<u64>(len).expect("memory");
            assert!(words.iter().all(|&word| word == 0));
            words.fill(9);
            words.resize(len + 5, 3).expect("memory");
            assert_eq!(words[len..], [3; 5]);
            let shared = words.share();
            let handle = shared.handle();
            assert_eq!(handle.upgrade::<u64>().expect("alive").len(), len + 5);
            drop(shared);
            assert!(handle.upgrade::<u64>().is_err());
        }
        let stats = pool.stats();
        assert_eq!(stats.hits, 0, "the pool is bypassed");
        assert_eq!((stats.live_bytes, stats.held_bytes), (0, 0));
        pool.audit().expect("balance");
        assert_eq!(pool.close_checked(), Ok(()));
    }
}

// --- a write after the drop ---

/// Takes a buffer, drops it, maybe writes to it, and takes it again.
#[inline(never)]
fn write_after_drop(checks: Checks, len: usize, written: Option<usize>) -> Vec<Report> {
    let pool = pool(checks);
    let buffer = pool.filled::<u8>(len, 1).expect("memory");
    let base = buffer.as_ptr().cast_mut();
    drop(buffer);
    if let Some(offset) = written {
        // SAFETY: none of the program's: the fault that is planted. The memory rests, mapped.
        unsafe { base.wrapping_add(offset).write_volatile(0x5A) };
    }
    let quarantined = pool.stats().quarantined;
    let next = pool.allocate::<u8>(len).expect("memory");
    let is_same = next.as_ptr().cast() == base.cast_const();
    assert_eq!(is_same, quarantined == 0, "{quarantined} are in quarantine");
    drop(next);
    pool.trim();
    assert_eq!(pool.stats().held_bytes, 0);
    reports()
}

#[test]
fn a_write_after_the_drop_is_reported_by_the_next_take() {
    let _turn = turn();
    let checks = Checks::new().poison().backtraces(1);
    for (len, offset) in [
        (1000, 0),
        (1000, 1023),
        (100_000, 70_000),
        (3_000_000, 2_999_999),
    ] {
        let found = write_after_drop(checks, len, Some(offset));
        let [
            Report::WrittenAfterRelease {
                offset: at,
                found,
                capacity,
                history,
                ..
            },
        ] = &found[..]
        else {
            panic!("{found:?}");
        };
        assert_eq!((*at, *found), (offset, 0x5A));
        assert_eq!(*capacity, class::capacity(class::of(len)));
        is_in(&history.allocated, "write_after_drop");
        is_in(&history.released, "write_after_drop");
        assert_eq!(write_after_drop(checks, len, None), []);
    }
}

#[test]
fn a_write_to_a_buffer_in_quarantine_is_reported_when_it_leaves() {
    let _turn = turn();
    let checks = Checks::new().poison().quarantine(16 << 20);
    for len in [1000, 100_000] {
        let found = write_after_drop(checks, len, Some(5));
        assert!(
            matches!(found[..], [Report::WrittenAfterRelease { offset: 5, .. }]),
            "{found:?}"
        );
        assert_eq!(write_after_drop(checks, len, None), []);
    }
}

#[test]
fn a_reader_of_released_memory_sees_the_pattern_and_nobody_elses_data_f22() {
    let _turn = turn();
    let pool = pool(Checks::new().poison().quarantine(1 << 20));
    let buffer = pool.filled::<u64>(100, 7).expect("memory");
    let stale = buffer.as_ptr();
    drop(buffer);
    let others: Vec<_> = (0..50)
        .map(|_| pool.filled::<u64>(100, 9).expect("memory"))
        .collect();
    // SAFETY: none of the program's: a stale read; the memory is held back, mapped.
    let seen = unsafe { stale.read_volatile() };
    assert_eq!(seen, 0xDBDB_DBDB_DBDB_DBDB);
    drop(others);
}

#[test]
fn zeroes_are_zeroes_in_a_poisoned_pool() {
    let _turn = turn();
    let pool = pool(Checks::new().poison());
    for len in [10, 5000, 1_000_000] {
        for _ in 0..3 {
            let zeroed = pool.zeroed::<u8>(len).expect("memory");
            assert!(zeroed.iter().all(|&byte| byte == 0), "{len}");
        }
    }
    assert!(pool.stats().hits >= 6);
}

// --- tokens ---

#[inline(never)]
fn token_of(pool: &Pool) -> Token {
    let shared = pool.zeroed::<f64>(1000).expect("memory").share();
    shared.into_token().expect("a lease")
}

#[inline(never)]
fn release_once(token: Token) {
    token.release().expect("a live token");
}

#[test]
fn a_second_release_of_a_token_carries_both_sites_f21() {
    let _turn = turn();
    let pool = pool(Checks::new().backtraces(1));
    let token = token_of(&pool);
    release_once(token);
    assert_eq!(reports(), [], "once is right");
    token.release().expect_err("a second release");
    let found = reports();
    let [
        Report::StrayToken {
            capacity, history, ..
        },
    ] = &found[..]
    else {
        panic!("{found:?}");
    };
    assert_eq!(*capacity, class::capacity(class::of(8000)));
    is_in(&history.allocated, "token_of");
    is_in(&history.released, "release_once");
    let text = found[0].to_string();
    assert!(
        text.contains("token_of") && text.contains("release_once"),
        "{text}"
    );
    assert!(
        format!("{history:#}").lines().count() > 4,
        "the whole stacks"
    );
}

#[test]
fn a_clone_of_a_token_knows_its_own_release() {
    let _turn = turn();
    let pool = pool(Checks::new().backtraces(1));
    let token = token_of(&pool);
    let clone = token.clone_token().expect("a lease");
    release_once(token);
    clone.redeem::<f64>().expect("live");
    clone.release().expect_err("redeemed");
    let found = reports();
    let [Report::StrayToken { history, .. }] = &found[..] else {
        panic!("{found:?}");
    };
    is_in(&history.allocated, "token_of");
    is_in(
        &history.released,
        "a_clone_of_a_token_knows_its_own_release",
    );
    assert_eq!(pool.close_checked(), Ok(()));
}

// --- what comes back by address ---

#[inline(never)]
fn lend(pool: &Pool, layout: Layout) -> NonNull<u8> {
    BufferAllocator::allocate(pool, layout)
        .expect("memory")
        .cast()
}

#[test]
fn foreign_pointers_second_returns_and_wrong_layouts_are_reported() {
    let _turn = turn();
    let pool = pool(Checks::new().backtraces(1));
    let layout = Layout::from_size_align(1000, 8).expect("a layout");
    let foreign = Box::new([0u8; 1000]);
    let outside = NonNull::from(&*foreign).cast::<u8>();
    // SAFETY: none: the misuse is the test; nothing is found at the address.
    unsafe { pool.deallocate(outside, layout) };
    let address = outside.addr().get();
    assert_eq!(reports(), [Report::ForeignPointer { address }]);

    let block = lend(&pool, layout);
    let wrong = Layout::from_size_align(100_000, 8).expect("a layout");
    // SAFETY: from this pool; the size is wrong, and not what the pool goes by.
    unsafe { pool.deallocate(block, wrong) };
    // SAFETY: none: the misuse is the test. The block rests, and its label says so.
    unsafe { pool.deallocate(block, layout) };
    let found = reports();
    let [
        Report::WrongLayout {
            capacity,
            history: wrong,
            ..
        },
        Report::DoubleDeallocation {
            history: double, ..
        },
    ] = &found[..]
    else {
        panic!("{found:?}");
    };
    assert_eq!(*capacity, 1024);
    is_in(&wrong.allocated, "lend");
    assert_eq!(wrong.released, None);
    is_in(&double.allocated, "lend");
    is_in(&double.released, "foreign_pointers_second_returns");

    let other = self::pool(Checks::new().backtraces(1));
    let block = lend(&other, layout);
    // SAFETY: from this pool with this layout.
    unsafe { other.deallocate(block, layout) };
    assert_eq!(reports(), []);
    assert_eq!(other.close_checked(), Ok(()));
}

#[test]
fn a_limit_that_does_not_balance_is_reported_at_its_end() {
    let _turn = turn();
    let layout = Layout::from_size_align(1000, 8).expect("a layout");
    let pool = Pool::builder()
        .checks(Checks::new().leaks(LeakLevel::All))
        .build();

    let forgetful = Limited::new("forgetful", 1 << 20, &pool);
    let block = lend_through(&forgetful, layout);
    // SAFETY: of this pool, but the node was passed by: the fault that is planted.
    unsafe { pool.deallocate(block, layout) };
    assert_eq!(forgetful.used(), 1024);
    drop(forgetful);
    let expected = Report::UnbalancedLimit {
        name: "forgetful",
        charged: 1024,
        excess: 0,
    };
    assert_eq!(reports(), [expected]);

    let generous = Limited::new("generous", 1 << 20, &pool);
    let block = lend(&pool, layout);
    // SAFETY: of this pool, but never of the node: the fault that is planted.
    unsafe { generous.deallocate(block, layout) };
    let expected = Report::UnbalancedLimit {
        name: "generous",
        charged: 0,
        excess: 1024,
    };
    assert_eq!(reports(), [expected]);
    assert_eq!(generous.used(), 0);

    let exact = Limited::new("exact", 1 << 20, &pool);
    let block = lend_through(&exact, layout);
    // SAFETY: of this node with this layout.
    unsafe { exact.deallocate(block, layout) };
    drop(exact);
    assert_eq!(reports(), []);
    assert_eq!(pool.close_checked(), Ok(()));
}

#[inline(never)]
fn lend_through(node: &Limited<&Pool>, layout: Layout) -> NonNull<u8> {
    node.allocate(layout).expect("memory").cast()
}

// --- leaks ---

#[inline(never)]
fn leak_in_a_loop(pool: &Pool, times: usize) {
    for _ in 0..times {
        mem::forget(pool.zeroed::<f64>(1000).expect("memory"));
    }
}

#[inline(never)]
fn balanced_loop(pool: &Pool, times: usize) {
    for _ in 0..times {
        drop(pool.zeroed::<f64>(1000).expect("memory"));
    }
}

#[test]
fn a_leak_in_a_loop_is_one_row_with_its_site_f95() {
    let _turn = turn();
    let pool = pool(Checks::new().leaks(LeakLevel::All));
    balanced_loop(&pool, 100);
    assert!(pool.leaks().is_empty());
    leak_in_a_loop(&pool, 10);
    let kept = pool.zeroed::<u8>(10).expect("memory");
    balanced_loop(&pool, 100);
    let report = pool.close_checked().expect_err("eleven are out");
    assert_eq!((report.buffers, report.groups.len()), (11, 2));
    let [leaked, other] = &report.groups[..] else {
        panic!("{report}");
    };
    let capacity = class::capacity(class::of(8000));
    assert_eq!((leaked.count, leaked.largest), (10, capacity));
    assert_eq!(leaked.bytes, 10 * capacity);
    is_in(&leaked.site, "leak_in_a_loop");
    assert_eq!((other.count, other.largest), (1, 64));
    is_in(&other.site, "a_leak_in_a_loop_is_one_row_with_its_site_f95");
    assert!(leaked.oldest >= other.oldest);
    let table = report.to_string();
    let (rows, place) = {
        let mut rows = table.lines().skip(1);
        let header = rows.next().expect("a header");
        (
            rows,
            header.find("  allocated at").expect("the last column"),
        )
    };
    for row in rows {
        let last: String = row.chars().skip(place).collect();
        assert!(
            last.starts_with("  ") && !last[2..].starts_with(' '),
            "{table}"
        );
    }
    drop(kept);
}

#[inline(never)]
fn forget_a_view(pool: &Pool) {
    let whole = pool.zeroed::<u8>(2 << 20).expect("memory").share();
    mem::forget(whole.slice(100..132).expect("in range"));
}

#[test]
fn a_forgotten_view_says_what_it_retains_f41() {
    let _turn = turn();
    let pool = pool(Checks::new().leaks(LeakLevel::All));
    let whole = pool.zeroed::<u8>(2 << 20).expect("memory").share();
    drop(whole.slice(100..132).expect("in range"));
    drop(whole);
    assert!(pool.leaks().is_empty(), "the twin keeps nothing");
    forget_a_view(&pool);
    let report = pool.leaks();
    let [group] = &report.groups[..] else {
        panic!("{report}");
    };
    is_in(&group.site, "forget_a_view");
    let view = group.view.expect("a view");
    assert_eq!((view.seen, view.retained), (32, 2 << 20));
    assert!(report.to_string().contains("32 B of 2 MiB"), "{report}");
    assert_eq!((report.buffers, report.bytes), (1, 2 << 20));
    // What to do about it: a copy that is as large as what is seen.
    let whole = pool.zeroed::<u8>(2 << 20).expect("memory").share();
    let small = whole.slice(0..32).expect("in range");
    drop(whole);
    let compact = pool.copied(&small[..]).expect("memory");
    drop(small);
    assert_eq!(compact.retained_bytes(), 64);
}

#[test]
fn recycled_blocks_never_inherit_a_site() {
    let _turn = turn();
    // One in two is recorded: the other one, in the same memory, must not look like it.
    let pool = pool(Checks::new().leaks(LeakLevel::Sampled(2)).backtraces(2));
    let mut recorded = 0;
    for _ in 0..100 {
        let first = recorded_here(&pool);
        let base = first.as_ptr();
        recorded += pool.leaks().groups.len();
        drop(first);
        assert!(pool.leaks().groups.is_empty());
        let second = pool.zeroed::<u8>(1000).expect("memory");
        assert_eq!(second.as_ptr(), base);
        for group in &pool.leaks().groups {
            recorded += 1;
            is_in(&group.site, "recycled_blocks_never_inherit_a_site");
        }
        assert_eq!(pool.leaks().buffers, 1);
        drop(second);
    }
    assert_eq!(recorded, 100, "each second one");
    // Another pool, in the same control blocks.
    drop(pool);
    let other = self::pool(Checks::new());
    let buffer = other.zeroed::<u8>(1000).expect("memory");
    assert_eq!(other.leaks().groups, []);
    assert_eq!(other.leaks().buffers, 1);
    drop(buffer);
}

#[inline(never)]
fn recorded_here(pool: &Pool) -> ndpool::Buffer<u8> {
    pool.zeroed::<u8>(1000).expect("memory")
}

#[test]
fn balanced_operations_on_many_threads_report_nothing() {
    let _turn = turn();
    let nightly = std::env::var_os("NDPOOL_NIGHTLY").is_some();
    let operations = if nightly { 10_000_000 } else { 40_000 };
    let checks = Checks::new()
        .leaks(LeakLevel::Sampled(64))
        .backtraces(64)
        .poison()
        .quarantine(1 << 20);
    let pool = pool(checks);
    let (sender, receiver) = std::sync::mpsc::sync_channel::<ndpool::SharedBuffer<u32>>(64);
    std::thread::scope(|scope| {
        let pool = &pool;
        scope.spawn(move || {
            for n in 0..operations / 2 {
                let buffer = pool.filled::<u32>(1 + n % 700, n as u32).expect("memory");
                let view = buffer.share().slice(0..1).expect("in range");
                if n % 8 == 0 {
                    sender.send(view).expect("a receiver");
                }
            }
        });
        scope.spawn(move || {
            for n in 0..operations / 2 {
                let buffer = pool.zeroed::<u8>(1 + n % 3000).expect("memory");
                assert_eq!(buffer[n % 3000], 0);
                if n % 4 == 0 {
                    let token = buffer.share().into_token().expect("a lease");
                    token.release().expect("once");
                }
            }
        });
        scope.spawn(move || {
            for view in receiver {
                assert_eq!(view[0] % 8, 0);
            }
        });
    });
    assert_eq!(reports(), []);
    assert_eq!(pool.close_checked(), Ok(()));
}

#[test]
fn a_pool_without_checks_counts_what_is_out() {
    let _turn = turn();
    let pool = pool(Checks::new());
    let kept = pool.zeroed::<u8>(1000).expect("memory");
    let report = pool.close_checked().expect_err("one is out");
    assert_eq!((report.buffers, report.level), (1, LeakLevel::Off));
    assert_eq!(report.groups, []);
    assert!(report.to_string().starts_with("1 buffers out"), "{report}");
    drop(kept);
    assert_eq!(pool.close_checked(), Ok(()));
}

#[test]
fn an_allocation_that_fails_half_way_leaves_no_leak_f27() {
    let _turn = turn();
    let pool = Pool::builder()
        .limit(300 << 10)
        .checks(Checks::new().leaks(LeakLevel::All))
        .build();
    let build = || -> Result<Vec<_>, ndpool::AllocError> {
        (0..5).map(|_| pool.zeroed::<u8>(100 << 10)).collect()
    };
    build().expect_err("the third is refused");
    assert!(pool.leaks().is_empty());
    assert_eq!(pool.close_checked(), Ok(()));
}

// --- the environment ---

#[test]
fn the_environment_chooses_checks_and_a_bad_word_is_named() {
    let _turn = turn();
    const NAME: &str = "the_environment_chooses_checks_and_a_bad_word_is_named";
    if is_child() {
        let pool = Pool::new();
        let _other = Pool::new();
        let buffer = pool.zeroed::<u8>(1000).expect("memory");
        let base = buffer.as_ptr().cast_mut();
        drop(buffer);
        // SAFETY: none of the program's: the fault that is planted.
        unsafe { base.write_volatile(1) };
        drop(pool.zeroed::<u8>(1000));
        return;
    }
    let output = child(NAME, "poison,gaurd,backtrace=1");
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(told.matches("`gaurd` is no check").count(), 1, "{told}");
    assert!(
        told.contains("was written after the release: 0x01"),
        "{told}"
    );
    assert!(told.contains(NAME), "the site: {told}");
    let output = child(NAME, "");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(report_lines(&output), 0, "{output:?}");
}

fn report_lines(output: &Output) -> usize {
    let told = String::from_utf8_lossy(&output.stderr);
    told.lines()
        .filter(|line| line.starts_with("ndpool: "))
        .count()
}

#[test]
fn nothing_is_known_where_nothing_was_recorded() {
    let _turn = turn();
    let pool = pool(Checks::new().poison());
    let buffer = pool.zeroed::<u8>(777).expect("memory");
    let base = buffer.as_ptr().cast_mut();
    drop(buffer);
    // SAFETY: none of the program's: the fault that is planted.
    unsafe { base.write_volatile(1) };
    drop(pool.zeroed::<u8>(777));
    let found = reports();
    let [Report::WrittenAfterRelease { history, .. }] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!(*history, History::default());
}

// --- every mode keeps the promises ---

#[test]
fn pools_with_checks_are_allocators_as_others_are() {
    let _turn = turn();
    // A guard faults every page of every block in anew: minutes of the suite.
    let nightly = std::env::var_os("NDPOOL_NIGHTLY").is_some();
    let modes = [
        "poison,quarantine=1m,wipe,leaks=7,backtrace=3",
        "guard,leaks=all",
        "guard,quarantine=1m",
        "poison",
    ];
    for mode in &modes[..if nightly { modes.len() } else { 1 }] {
        let pool = pool(mode.parse().expect("checks"));
        let report = ndpool::conformance::check(&pool).expect(mode);
        assert!(
            report.refused == 0 && report.served > 10_000,
            "{mode}: {report}"
        );
        assert_eq!(reports(), [], "{mode}");
        pool.audit().expect(mode);
        assert_eq!(pool.close_checked(), Ok(()), "{mode}");
    }
}
