//! Random decisions of a test, which a seed repeats.

/// A seeded random number generator (SplitMix64).
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in a range.
    pub fn in_range(&mut self, range: std::ops::Range<u64>) -> u64 {
        range.start + self.number() % (range.end - range.start)
    }
}
