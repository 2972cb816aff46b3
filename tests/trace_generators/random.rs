//! Repeatable random numbers for generated programs.

/// Steele, Lea and Flood's splitmix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

#[allow(dead_code)]
impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// Below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.word()) * n as u128) >> 64) as usize
    }

    /// Between `least` and `most`, every doubling as likely as the other.
    pub fn size(&mut self, least: usize, most: usize) -> usize {
        let part = self.word() as f64 / u64::MAX as f64;
        let size = least as f64 * (most as f64 / least as f64).powf(part);
        (size as usize).clamp(least, most)
    }
}
