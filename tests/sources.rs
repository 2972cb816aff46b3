//! The sources of memory: sizes, alignments, zeroes, footprints, huge pages, injected failures.

#![allow(unsafe_code)]

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;

use ndpool::AllocErrorKind;
use ndpool::source::{Faulty, Heap, Memory, Mmap, Os, Source};

const MIB: usize = 1 << 20;
static OS: Os = Os::new();

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).expect("valid in this test")
}

/// A block that goes back when dropped.
struct Block<'a> {
    source: &'a dyn Source,
    layout: Layout,
    memory: Memory,
}

impl<'a> Block<'a> {
    fn new(source: &'a dyn Source, layout: Layout, zeroed: bool) -> Self {
        let memory = source.alloc(layout, zeroed).expect("memory for the test");
        Self {
            source,
            layout,
            memory,
        }
    }

    fn address(&self) -> usize {
        self.memory.base.addr().get()
    }

    fn fill(&mut self, byte: u8) {
        // SAFETY: the block is ours and `layout.size()` bytes long.
        unsafe { self.memory.base.write_bytes(byte, self.layout.size()) };
    }

    /// The bytes of a block that was filled, or is known zero.
    fn bytes(&self) -> &[u8] {
        let base = NonNull::slice_from_raw_parts(self.memory.base, self.layout.size());
        // SAFETY: the block is ours, initialised, and borrowed with `self`.
        unsafe { base.as_ref() }
    }

    fn discard(&mut self, len: usize) -> bool {
        // SAFETY: the block is ours, and `len` is within it.
        unsafe {
            self.source
                .discard(self.memory.base, self.layout, self.memory.token, len)
        }
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        // SAFETY: the block is from this source with this layout and token, and goes back once.
        unsafe {
            self.source
                .dealloc(self.memory.base, self.layout, self.memory.token)
        };
    }
}

fn sources() -> [Box<dyn Source>; 4] {
    [
        Box::new(Heap::new()),
        Box::new(Mmap::new()),
        Box::new(Os::new()),
        Box::new(Arc::new(Faulty::never(Os::new()))),
    ]
}

#[test]
fn blocks_are_aligned_long_enough_and_zero_when_said_so() {
    for source in sources() {
        for align in [1, 8, 16, 32, 64, 128, 256, 4096, 8192, 2 * MIB] {
            for size in [
                1,
                63,
                64,
                65,
                4096,
                4097,
                128 << 10,
                2 * MIB - 1,
                2 * MIB,
                3 * MIB + 5,
            ] {
                for zeroed in [true, false] {
                    let layout = layout(size, align);
                    let mut block = Block::new(&source, layout, zeroed);
                    assert_eq!(block.address() % align, 0, "{}: {layout:?}", source.name());
                    assert!(
                        source.footprint(layout) >= size,
                        "{}: {layout:?}",
                        source.name()
                    );
                    if block.memory.zeroed {
                        assert!(block.bytes().iter().all(|&byte| byte == 0), "{layout:?}");
                    }
                    block.fill(0xA5);
                    assert!(block.bytes().iter().all(|&byte| byte == 0xA5), "{layout:?}");
                }
            }
        }
    }
}

#[test]
fn dirty_memory_is_never_called_zero_f84() {
    for source in sources() {
        for size in [64, 4096, 100_000, 200_000, 4 * MIB] {
            for align in [16, 128] {
                let layout = layout(size, align);
                for _ in 0..8 {
                    Block::new(&source, layout, false).fill(0xEE);
                    let block = Block::new(&source, layout, true);
                    if block.memory.zeroed {
                        assert!(block.bytes().iter().all(|&byte| byte == 0), "{layout:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn alignments_up_to_two_gibibytes_touch_no_more_than_the_block() {
    for align in [4 * MIB, 1 << 30, 2 << 30] {
        for source in [&Mmap::new() as &dyn Source, &Os::new()] {
            let layout = layout(100, align);
            assert_eq!(source.footprint(layout), page());
            // A machine may refuse that much address space; it may not serve it wrongly.
            if source
                .alloc(layout, false)
                .map(|memory| release(source, layout, memory))
                .is_err()
            {
                continue;
            }
            let mut block = Block::new(source, layout, false);
            block.fill(7);
            assert_eq!(block.address() % align, 0);
        }
    }
}

fn release(source: &dyn Source, layout: Layout, memory: Memory) {
    // SAFETY: just allocated from this source with this layout, and goes back once.
    unsafe { source.dealloc(memory.base, layout, memory.token) };
}

#[test]
fn impossible_sizes_are_typed_errors_f78_f79() {
    let most = isize::MAX as usize;
    for source in sources() {
        for align in [1, 64, 4096, 2 * MIB, 1 << 30] {
            let edge = most - (align - 1);
            for size in [edge, edge - 1, most / 2] {
                let layout = layout(size, align);
                let error = source.alloc(layout, true).expect_err("cannot exist");
                assert!(
                    matches!(
                        error.kind,
                        AllocErrorKind::TooLarge | AllocErrorKind::SourceFailed
                    ),
                    "{error}"
                );
                assert_eq!((error.requested, error.align), (size, align));
                assert!(source.footprint(layout) >= size);
            }
        }
    }
}

#[test]
fn the_route_depends_on_the_layout_alone() {
    let os = Os::new();
    for (size, align) in [
        (100, 64),
        (131_071, 4096),
        (131_072, 1),
        (1, 8192),
        (3 * MIB, 128),
    ] {
        let layout = layout(size, align);
        let mapped = size >= 131_072 || align > page();
        let part: &dyn Source = if mapped { &Mmap::new() } else { &Heap::new() };
        assert_eq!(os.footprint(layout), part.footprint(layout), "{layout:?}");
        let block = Block::new(&os, layout, false);
        assert_eq!(block.memory.token != 0, mapped, "{layout:?}");
    }
}

#[test]
fn discarded_bytes_are_zero_to_the_last_and_the_rest_is_kept_f90() {
    for size in [64 << 10, 2 * MIB, 4 * MIB, 5 * MIB + 4097] {
        let layout = layout(size, 128);
        for len in [
            1,
            4096,
            4097,
            2 * MIB - 1,
            2 * MIB,
            2 * MIB + 1,
            4 * MIB - 1,
            size,
        ] {
            if len > size {
                continue;
            }
            let mut block = Block::new(&Mmap, layout, false);
            block.fill(0xA5);
            let discarded = block.discard(len);
            assert_eq!(discarded, len >= 2 * MIB && huge_pages(), "{size} {len}");
            if discarded {
                assert!(
                    block.bytes()[..len].iter().all(|&byte| byte == 0),
                    "{size} {len}"
                );
                assert!(
                    block.bytes()[len..].iter().all(|&byte| byte == 0xA5),
                    "{size} {len}"
                );
            } else {
                assert!(
                    block.bytes().iter().all(|&byte| byte == 0xA5),
                    "{size} {len}"
                );
            }
        }
    }
    let mut small = Block::new(&Heap, layout(64, 128), false);
    assert!(!small.discard(64), "the heap cannot give pages back");
}

#[test]
fn faulty_fails_by_its_rule_and_passes_the_rest_on() {
    let small = layout(64, 64);
    let outcomes = |source: &dyn Source, n: usize| -> Vec<bool> {
        let one = |_| match source.alloc(small, false) {
            Ok(memory) => {
                release(source, small, memory);
                true
            }
            Err(error) => {
                assert_eq!(error.kind, AllocErrorKind::SourceFailed);
                assert_eq!(error.refused_by, "faulty");
                false
            }
        };
        (0..n).map(one).collect()
    };
    assert_eq!(
        outcomes(&Faulty::every(Os::new(), 3), 7),
        [true, true, false, true, true, false, true]
    );
    assert_eq!(outcomes(&Faulty::every(Os::new(), 1), 3), [false; 3]);
    assert_eq!(outcomes(&Faulty::every(Os::new(), 0), 3), [true; 3]);
    assert_eq!(
        outcomes(&Faulty::after_bytes(Os::new(), 130), 4),
        [true, true, false, false]
    );
    assert_eq!(
        outcomes(&Faulty::with_probability(Os::new(), 0.0, 1), 50),
        [true; 50]
    );
    assert_eq!(
        outcomes(&Faulty::with_probability(Os::new(), 1.0, 1), 50),
        [false; 50]
    );

    let half = Faulty::with_probability(Os::new(), 0.5, 42);
    let first = outcomes(&half, 1000);
    let failed = first.iter().filter(|&&ok| !ok).count();
    assert!((400..600).contains(&failed), "{failed} of 1000");
    assert_eq!((half.calls(), half.failures()), (1000, failed as u64));
    assert_eq!(
        outcomes(&Faulty::with_probability(Os::new(), 0.5, 42), 1000),
        first,
        "repeatable"
    );
    assert_ne!(
        outcomes(&Faulty::with_probability(Os::new(), 0.5, 43), 1000),
        first
    );
}

/// Whether this system serves huge pages to those who ask.
fn huge_pages() -> bool {
    std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
        .is_ok_and(|modes| !modes.contains("[never]"))
}

fn page() -> usize {
    // SAFETY: sysconf reads no memory of ours.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    page.try_into().expect("a page size")
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn footprint_of_the_heap_is_the_stride_between_blocks() {
    for (size, align) in [
        (64, 16),
        (64, 64),
        (64, 128),
        (128, 128),
        (320, 128),
        (1024, 128),
        (4096, 4096),
        (80 << 10, 4096),
    ] {
        let layout = layout(size, align);
        let blocks: Vec<_> = (0..2000)
            .map(|_| Block::new(&Heap, layout, false))
            .collect();
        let mut addresses: Vec<_> = blocks.iter().map(Block::address).collect();
        addresses.sort_unstable();
        let mut strides: Vec<_> = addresses.windows(2).map(|pair| pair[1] - pair[0]).collect();
        strides.sort_unstable();
        assert_eq!(
            strides[strides.len() / 2],
            Heap.footprint(layout),
            "{layout:?}"
        );
    }
}

/// What only Linux tells: faults, and the flags of each mapping.
#[cfg(target_os = "linux")]
mod linux {
    use super::*;

    fn minor_faults() -> i64 {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: `usage` is a valid place for the answer.
        let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
        assert_eq!(result, 0);
        // SAFETY: all-zero is a valid `rusage`, and the call has filled it in.
        unsafe { usage.assume_init() }.ru_minflt
    }

    #[test]
    fn untouched_zeroed_80_megabytes_cost_tens_of_microseconds() {
        let layout = layout(80_000_000, 128);
        let mut times = Vec::new();
        for _ in 0..21 {
            let faults = minor_faults();
            let start = std::time::Instant::now();
            let block = Block::new(&OS, layout, true);
            let time = start.elapsed();
            assert!(block.memory.zeroed);
            assert!(
                minor_faults() - faults < 20,
                "nothing of the block is touched"
            );
            times.push(time);
        }
        times.sort_unstable();
        assert!(times[10].as_micros() < 500, "median {:?}", times[10]);
    }

    /// Address ranges of this process with the advice to use huge pages.
    fn huge_ranges() -> Vec<std::ops::Range<usize>> {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
        let mut range = 0..0;
        let mut huge = Vec::new();
        for line in maps.lines() {
            let mut words = line.split_whitespace();
            let first = words.next().unwrap_or("");
            if let Some((start, end)) = first.split_once('-')
                && let (Ok(start), Ok(end)) = (
                    usize::from_str_radix(start, 16),
                    usize::from_str_radix(end, 16),
                )
            {
                range = start..end;
            } else if first == "VmFlags:" && words.any(|flag| flag == "hg") {
                huge.push(range.clone());
            }
        }
        huge
    }

    fn advised(block: &Block<'_>) -> bool {
        huge_ranges().iter().any(|range| {
            range.contains(&block.address())
                && range.contains(&(block.address() + block.layout.size() - 1))
        })
    }

    #[test]
    fn huge_pages_are_advised_alike_for_zeroed_and_not_and_nowhere_else_f88_f89() {
        if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
            eprintln!("skipped: this kernel has no transparent huge pages");
            return;
        }
        let large = layout(5 * MIB, 128);
        for zeroed in [true, false] {
            let block = Block::new(&OS, large, zeroed);
            assert!(advised(&block), "zeroed {zeroed}");
            assert_eq!(block.address() % (2 * MIB), 0);
        }
        let small = Block::new(&OS, layout(MIB, 128), false);
        let heap = Block::new(&Heap, layout(100_000, 128), false);
        assert!(
            !advised(&small) && !advised(&heap),
            "advice reaches large mappings only"
        );
        let on_heap = Block::new(&Heap, large, false);
        assert!(!advised(&on_heap), "never memory of malloc's");
    }

    #[test]
    fn a_large_block_faults_in_by_huge_pages() {
        if !huge_pages() {
            eprintln!("skipped: huge pages are switched off here");
            return;
        }
        let mut block = Block::new(&OS, layout(64 * MIB, 128), false);
        let faults = minor_faults();
        block.fill(1);
        let faults = minor_faults() - faults;
        // 32 huge pages, or a few more faults where the system ran short of them.
        assert!(faults < 64 * MIB as i64 / 4096 / 4, "{faults} faults");
    }
}
