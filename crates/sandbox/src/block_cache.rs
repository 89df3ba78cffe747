//! A cache of freed blocks for each thread, in front of the system's allocator.
//!
//! The allocator of the GNU C library keeps seven freed blocks of each size per thread and none of more than
//! a kilobyte; everything else takes a lock and looks through lists. A venue has dozens of requests at a time, each with
//! futures and buffers of several kilobytes. Every block here is a block of the system's allocator, of a size that is
//! rounded up to that of its class: this only puts off freeing it, on the thread that freed it, up to
//! [`CLASS_BLOCKS_MAX`] blocks and [`CLASS_BYTES_MAX`] bytes of each class. A thread that ends frees all of its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::ptr::{self, NonNull};

use crate::limits::{CACHED_BLOCK_BYTES_MAX, CLASS_BLOCKS_MAX, CLASS_BYTES_MAX};

/// The alignment that every block has. Blocks with a larger one are not cached.
const ALIGN: usize = 16;

/// The largest size of the classes that are [`ALIGN`] bytes apart.
const FINE_BYTES: usize = 1024;
const FINE_CLASSES: usize = FINE_BYTES / ALIGN;

/// Above [`FINE_BYTES`] there are four classes for each power of two.
const STEPS_BITS: u32 = 2;
const COARSE_CLASSES: usize =
    ((CACHED_BLOCK_BYTES_MAX / FINE_BYTES).ilog2() << STEPS_BITS) as usize;

const CLASSES: usize = FINE_CLASSES + COARSE_CLASSES;

/// The allocator: a cache of freed blocks for each thread.
#[derive(Debug, Clone, Copy, Default)]
pub struct BlockCache;

thread_local! {
    static FREED: FreedBlocks = const { FreedBlocks::new() };
}

/// A class of sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Class {
    number: usize,
    bytes: usize,
}

impl Class {
    /// The class of a layout. `None` if such blocks are not cached.
    fn from_layout(layout: Layout) -> Option<Class> {
        let size = layout.size();
        if layout.align() > ALIGN || size > CACHED_BLOCK_BYTES_MAX || size == 0 {
            return None;
        }
        if size <= FINE_BYTES {
            let steps = size.div_ceil(ALIGN);
            return Some(Class { number: steps - 1, bytes: steps * ALIGN });
        }
        let last = size - 1;
        let power = last.ilog2();
        let shift = power - STEPS_BITS;
        let row = (power - FINE_BYTES.ilog2()) as usize;
        let column = (last >> shift) & ((1 << STEPS_BITS) - 1);
        Some(Class {
            number: FINE_CLASSES + (row << STEPS_BITS) + column,
            bytes: ((last >> shift) + 1) << shift,
        })
    }

    /// The layout with which every block of the class is allocated.
    fn layout(self) -> Layout {
        // SAFETY: the alignment is a power of two, and no class has so many bytes that rounding up overflows.
        unsafe { Layout::from_size_align_unchecked(self.bytes, ALIGN) }
    }

    /// How many freed blocks a thread keeps.
    fn kept_max(self) -> u32 {
        u32::try_from(CLASS_BYTES_MAX / self.bytes).unwrap_or(u32::MAX).min(CLASS_BLOCKS_MAX)
    }
}

/// A freed block, which holds the next one of its class.
struct FreedBlock {
    next: *mut FreedBlock,
}

/// The freed blocks of one class.
#[derive(Clone, Copy)]
struct FreedList {
    first: *mut FreedBlock,
    count: u32,
    class_bytes: u32,
}

/// The freed blocks of one thread.
struct FreedBlocks(UnsafeCell<[FreedList; CLASSES]>);

impl FreedBlocks {
    const fn new() -> Self {
        let empty = FreedList { first: ptr::null_mut(), count: 0, class_bytes: 0 };
        FreedBlocks(UnsafeCell::new([empty; CLASSES]))
    }

    /// Takes a freed block of a class.
    #[inline]
    fn take_block(&self, class: Class) -> Option<NonNull<u8>> {
        // SAFETY: the lists are reached through a thread-local variable only, so no other thread has them, and neither
        // this function nor `keep_block` calls anything that could allocate while this reference exists.
        let list = unsafe { &mut (*self.0.get())[class.number] };
        let block = NonNull::new(list.first)?;
        // SAFETY: a block on the list was given to `keep_block`, which wrote it, and nobody else has it since.
        list.first = unsafe { block.as_ref() }.next;
        list.count -= 1;
        Some(block.cast())
    }

    /// Keeps a freed block. Returns false if there are enough of its class.
    ///
    /// # Safety
    /// The block was allocated with the layout of the class, and nobody uses it any more.
    #[inline]
    unsafe fn keep_block(&self, class: Class, block: *mut u8) -> bool {
        // SAFETY: as in `take_block`.
        let list = unsafe { &mut (*self.0.get())[class.number] };
        if list.count >= class.kept_max() {
            return false;
        }
        let block = block.cast::<FreedBlock>();
        // SAFETY: the block has at least 16 bytes and that alignment, and the caller has given it up.
        unsafe { block.write(FreedBlock { next: list.first }) };
        list.first = block;
        list.count += 1;
        list.class_bytes = class.bytes as u32;
        true
    }
}

impl Drop for FreedBlocks {
    fn drop(&mut self) {
        for list in self.0.get_mut() {
            let class = Class { number: 0, bytes: list.class_bytes as usize };
            while let Some(block) = NonNull::new(list.first) {
                // SAFETY: as in `take_block`. The block was allocated with the layout of its class.
                unsafe {
                    list.first = block.as_ref().next;
                    System.dealloc(block.as_ptr().cast(), class.layout());
                }
            }
            list.count = 0;
        }
    }
}

// SAFETY: every block comes from `System` with the layout of its class, or with the requested one if it has no class,
// and is returned with the same: the class follows from the layout alone, which `dealloc` and `realloc` are given again.
// A block is on at most one list, and on a list only between `dealloc` and the `alloc` that returns it.
unsafe impl GlobalAlloc for BlockCache {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(class) = Class::from_layout(layout) else {
            // SAFETY: the caller's contract is the same.
            return unsafe { System.alloc(layout) };
        };
        // A thread that is about to end has none any more.
        match FREED.try_with(|freed| freed.take_block(class)) {
            Ok(Some(block)) => block.as_ptr(),
            // SAFETY: the layout of a class is not empty.
            _ => unsafe { System.alloc(class.layout()) },
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(class) = Class::from_layout(layout) else {
            // SAFETY: a block without a class was allocated by `System` with this layout.
            return unsafe { System.dealloc(block, layout) };
        };
        // SAFETY: a block of this layout was allocated with that of its class, and the caller has given it up.
        let is_kept = FREED.try_with(|freed| unsafe { freed.keep_block(class, block) });
        if is_kept != Ok(true) {
            // SAFETY: as above.
            unsafe { System.dealloc(block, class.layout()) };
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if Class::from_layout(layout).is_none() {
            // SAFETY: the caller's contract is the same.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: the caller's contract is the same.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: the block has at least as many bytes as the layout.
            unsafe { ptr::write_bytes(block, 0, layout.size()) };
        }
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that the new size, rounded up to the alignment, does not overflow.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        match (Class::from_layout(layout), Class::from_layout(new_layout)) {
            // SAFETY: neither has a class, so `System` allocated the block with this layout.
            (None, None) => unsafe { System.realloc(block, layout, new_size) },
            (Some(old), Some(new)) if old == new => block,
            _ => {
                // SAFETY: both blocks have at least as many bytes as are copied, and are not the same.
                unsafe {
                    let new_block = self.alloc(new_layout);
                    if !new_block.is_null() {
                        let bytes = layout.size().min(new_size);
                        ptr::copy_nonoverlapping(block, new_block, bytes);
                        self.dealloc(block, layout);
                    }
                    new_block
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 8).unwrap()
    }

    #[test]
    fn classes_are_in_order_and_waste_at_most_a_quarter() {
        let mut last = Class::from_layout(layout(1)).unwrap();
        assert_eq!(last, Class { number: 0, bytes: 16 });
        for size in 2..=CACHED_BLOCK_BYTES_MAX {
            let class = Class::from_layout(layout(size)).unwrap();
            assert!(class.bytes >= size && class.bytes <= size.max(48) * 5 / 4 + 16, "{size}");
            let is_next = class.number == last.number + 1 && last.bytes == size - 1;
            assert!(class == last || is_next, "{size}: {class:?} after {last:?}");
            last = class;
        }
        assert_eq!(last, Class { number: CLASSES - 1, bytes: CACHED_BLOCK_BYTES_MAX });
        assert_eq!(Class::from_layout(layout(CACHED_BLOCK_BYTES_MAX + 1)), None);
        assert_eq!(Class::from_layout(Layout::from_size_align(64, 32).unwrap()), None);
    }

    /// Blocks of many sizes that are allocated, grown, shrunk and freed, in part on another thread, keep their contents.
    #[test]
    fn blocks_keep_their_contents_until_they_are_freed() {
        let (sender, receiver) = mpsc::channel::<Vec<(usize, usize, u8)>>();
        let check = |block: *mut u8, size: usize, byte: u8| {
            // SAFETY: the block was allocated with this size and written.
            let bytes = unsafe { std::slice::from_raw_parts(block, size) };
            assert!(bytes.iter().all(|found| *found == byte));
        };
        let other = thread::spawn(move || {
            for blocks in receiver {
                for (block, size, byte) in blocks {
                    let block = block as *mut u8;
                    check(block, size, byte);
                    // SAFETY: the block was allocated with this layout, and this thread has it alone.
                    unsafe { BlockCache.dealloc(block, layout(size)) };
                }
            }
        });
        let mut seed = 7_u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % below
        };
        let mut blocks: Vec<(usize, usize, u8)> = Vec::new();
        for number in 0..60_000_usize {
            let byte = number as u8;
            match random(4) {
                0 if !blocks.is_empty() => {
                    let (block, size, old) = blocks.swap_remove(random(blocks.len()));
                    let block = block as *mut u8;
                    check(block, size, old);
                    let grown = 1 + random(20_000);
                    // SAFETY: the block has this layout, and the new one is written before it is read.
                    let block = unsafe {
                        let block = BlockCache.realloc(block, layout(size), grown);
                        check(block, size.min(grown), old);
                        ptr::write_bytes(block, byte, grown);
                        block
                    };
                    blocks.push((block as usize, grown, byte));
                }
                1 if !blocks.is_empty() => {
                    let (block, size, old) = blocks.swap_remove(random(blocks.len()));
                    check(block as *mut u8, size, old);
                    // SAFETY: the block has this layout and is given up.
                    unsafe { BlockCache.dealloc(block as *mut u8, layout(size)) };
                }
                _ => {
                    let size = if random(4) == 0 { 1 + random(20_000) } else { 1 + random(600) };
                    // SAFETY: the layout is not empty, and all of the block is written.
                    let block = unsafe {
                        let block = BlockCache.alloc_zeroed(layout(size));
                        check(block, size, 0);
                        ptr::write_bytes(block, byte, size);
                        block
                    };
                    blocks.push((block as usize, size, byte));
                }
            }
            if blocks.len() > 400 {
                sender.send(blocks.split_off(200)).unwrap();
            }
        }
        sender.send(blocks).unwrap();
        drop(sender);
        other.join().unwrap();
    }

    #[test]
    fn a_thread_keeps_a_bounded_number_of_blocks_of_a_class() {
        let freed = FreedBlocks::new();
        let class = Class::from_layout(layout(8_192)).unwrap();
        let mut kept = 0;
        loop {
            // SAFETY: the block is allocated with the layout of the class and given up.
            let is_kept = unsafe {
                let block = System.alloc(class.layout());
                let is_kept = freed.keep_block(class, block);
                if !is_kept {
                    System.dealloc(block, class.layout());
                }
                is_kept
            };
            if !is_kept {
                break;
            }
            kept += 1;
        }
        assert_eq!(kept, CLASS_BYTES_MAX / 8_192);
        assert!(freed.take_block(class).is_some());
    }
}
