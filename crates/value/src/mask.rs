//! The set of children of a tree node: one bit per hex digit.

/// A set of hex digits. Children are stored in ascending order of their digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mask(u16);

impl Mask {
    pub(crate) fn from_be_bytes(bytes: [u8; 2]) -> Self {
        Mask(u16::from_be_bytes(bytes))
    }

    pub(crate) fn to_be_bytes(self) -> [u8; 2] {
        self.0.to_be_bytes()
    }

    /// Number of children.
    pub(crate) fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The digits that have a child, in the order of the children.
    pub(crate) fn digits(self) -> impl Iterator<Item = u8> {
        (0..16).filter(move |digit| self.0 & (1 << digit) != 0)
    }

    /// The position of the child for `digit`: `Ok` if it exists, `Err` with the position at which
    /// it would be inserted.
    pub(crate) fn slot(self, digit: u8) -> Result<usize, usize> {
        let slot = (self.0 & ((1 << digit) - 1)).count_ones() as usize;
        if self.0 & (1 << digit) != 0 { Ok(slot) } else { Err(slot) }
    }

    /// The digit of the child at position `slot`.
    pub(crate) fn digit(self, slot: usize) -> u8 {
        self.digits().nth(slot).unwrap_or(0)
    }

    /// Inserts the child for `digit` into `children`, replacing an existing one.
    pub(crate) fn insert<C>(&mut self, children: &mut Vec<C>, digit: u8, child: C) {
        match self.slot(digit) {
            Ok(slot) => children[slot] = child,
            Err(slot) => {
                self.0 |= 1 << digit;
                children.insert(slot, child);
            }
        }
    }

    /// Removes the child for `digit` from `children`, if it exists.
    pub(crate) fn remove<C>(&mut self, children: &mut Vec<C>, digit: u8) {
        if let Ok(slot) = self.slot(digit) {
            self.0 &= !(1 << digit);
            children.remove(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_in_the_order_of_their_digits() {
        let mut mask = Mask::default();
        let mut children = Vec::new();
        for digit in [9, 0, 15, 3, 9] {
            mask.insert(&mut children, digit, digit);
        }
        assert_eq!(children, [0, 3, 9, 15]);
        assert_eq!(mask.digits().collect::<Vec<_>>(), children);
        assert_eq!((mask.slot(3), mask.slot(4), mask.digit(2)), (Ok(1), Err(2), 9));
        mask.remove(&mut children, 3);
        mask.remove(&mut children, 4);
        assert_eq!((children, mask.len()), (vec![0, 9, 15], 3));
    }
}
