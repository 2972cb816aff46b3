//! The size-class table: four classes per doubling, from 64 bytes up.
//!
//! A request of `n` bytes is served by the smallest class that holds it, at most 25 % larger than
//! asked (requests under 64 bytes take 64). The lookup is arithmetic, without a loop or a table.

/// Smallest class, in bytes.
pub const MIN_CAPACITY: usize = 64;

/// Classes per doubling of the size.
pub const PER_DOUBLING: usize = 4;

/// Number of classes in the table: 64 B, then four per doubling up to 1 TiB (1 GiB on 32 bits).
pub const COUNT: usize = if usize::BITS >= 64 {
    1 + 4 * 34
} else {
    1 + 4 * 24
};

/// What the arithmetic of [`of`] yields for sizes up to 64 bytes: `7 + 4 * 5`.
const BIAS: usize = 27;

/// Largest size that has a class, in bytes.
pub const MAX_CAPACITY: usize = CAPACITIES[COUNT - 1];

/// Capacities of all classes, in bytes, rising.
pub static TABLE: [usize; COUNT] = CAPACITIES;

const CAPACITIES: [usize; COUNT] = {
    let mut table = [0; COUNT];
    let mut class = 0;
    while class < COUNT {
        // The inverse of `of`: the class of `quarter << (exponent - 2)` ends at the next quarter.
        let step = class + BIAS - PER_DOUBLING;
        let (exponent, quarter) = (step / PER_DOUBLING, PER_DOUBLING + step % PER_DOUBLING);
        table[class] = (quarter + 1) << (exponent - 2);
        class += 1;
    }
    table
};

/// Class that serves a request of `size` bytes. Requests beyond [`MAX_CAPACITY`], and 0, yield an
/// index of [`COUNT`] or more.
#[inline(always)]
#[must_use]
pub const fn of(size: usize) -> usize {
    // Sizes up to 64 share the class of 64. Size 0 wraps to the largest index.
    let last = size.wrapping_sub(1);
    let last = if last < MIN_CAPACITY {
        MIN_CAPACITY - 1
    } else {
        last
    };
    // Written as the inverse of a bit scan, so that it compiles to one.
    let exponent = (last.leading_zeros() ^ (usize::BITS - 1)) as usize;
    // The top three bits of `last` are 4..=7 quarters. Shifted up before it is shifted down, which
    // saves a subtraction; what that loses at the very top is beyond the table anyway.
    ((last << 2) >> exponent) + PER_DOUBLING * exponent - BIAS
}

/// Bytes that class `class` holds.
///
/// # Panics
/// If `class` is not below [`COUNT`].
#[inline(always)]
#[must_use]
pub const fn capacity(class: usize) -> usize {
    CAPACITIES[class]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges() -> impl Iterator<Item = usize> {
        (0..40).flat_map(|k| {
            let power = 1usize << k;
            [power - 1, power, power + 1]
        })
    }

    #[test]
    fn capacities_rise_strictly_from_64_bytes_by_at_most_a_quarter_f83() {
        assert_eq!(TABLE[0], 64);
        assert_eq!(&TABLE[..6], &[64, 80, 96, 112, 128, 160]);
        for pair in TABLE.windows(2) {
            assert!(pair[0] < pair[1], "{pair:?}");
            assert!(pair[1] - pair[0] <= pair[0] / 4, "{pair:?}");
        }
        assert_eq!(MAX_CAPACITY, 1 << 40);
    }

    #[test]
    fn class_is_the_smallest_that_holds_the_size() {
        for size in edges().filter(|&n| n > 0) {
            let class = of(size);
            assert!(class < COUNT, "{size}");
            assert!(capacity(class) >= size, "{size}");
            assert!(class == 0 || capacity(class - 1) < size, "{size}");
            assert_eq!(of(capacity(class)), class, "{size}");
            if size >= 64 {
                assert!(capacity(class) * 4 <= size * 5, "{size}: waste above 25 %");
            }
        }
    }

    #[test]
    fn every_size_up_to_one_mebibyte_agrees_with_a_linear_search() {
        let mut class = 0;
        for size in 1..=1 << 20 {
            while capacity(class) < size {
                class += 1;
            }
            assert_eq!(of(size), class, "{size}");
        }
    }

    #[test]
    fn sizes_without_a_class_are_out_of_the_table_f43_f78() {
        for size in [
            0,
            MAX_CAPACITY + 1,
            isize::MAX as usize,
            isize::MAX as usize + 1,
            usize::MAX,
        ] {
            assert!(of(size) >= COUNT, "{size}");
        }
    }
}
