//! The merged iterator against a plain ordered map.

use std::collections::BTreeMap;
use std::ops::Bound;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use crate::error::{IndexError, RowReadError};
use crate::merge::{Layer, Merged, MergedSlots, copy_up_to_limit};
use crate::overlay::Generation;
use crate::shared::layer;
use crate::types::{Direction, Key, KeyRange, RowBytes, Slot, TableId};

const TABLE: TableId = TableId(0);

type Rows = BTreeMap<Vec<u8>, Option<u8>>;

fn keys() -> impl Strategy<Value = Vec<u8>> {
    vec(0..4u8, 0..3)
}

fn layers() -> impl Strategy<Value = Vec<Rows>> {
    vec(btree_map(keys(), proptest::option::of(any::<u8>()), 0..12), 1..5)
}

fn bounds() -> impl Strategy<Value = Bound<Key>> {
    prop_oneof![
        Just(Bound::Unbounded),
        keys().prop_map(|key| Bound::Included(key.into())),
        keys().prop_map(|key| Bound::Excluded(key.into())),
    ]
}

fn directions() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::Forward), Just(Direction::Backward)]
}

fn generation(rows: &Rows) -> Generation {
    let mut generation = Generation::new(1);
    for (key, value) in rows {
        let slot = value.map_or(Slot::Deleted, |byte| Slot::Put(RowBytes::from([byte])));
        generation.insert(TABLE, Key::from(&key[..]), slot);
    }
    generation
}

/// What the layers mean: later maps in the list are older.
fn model(layers: &[Rows], range: &KeyRange, direction: Direction) -> Vec<(Vec<u8>, u8)> {
    let mut merged = BTreeMap::new();
    for rows in layers.iter().rev() {
        merged.extend(rows.clone());
    }
    let inside = |key: &Vec<u8>| {
        let above = match &range.lower {
            Bound::Included(lower) => key[..] >= lower[..],
            Bound::Excluded(lower) => key[..] > lower[..],
            Bound::Unbounded => true,
        };
        let below = match &range.upper {
            Bound::Included(upper) => key[..] <= upper[..],
            Bound::Excluded(upper) => key[..] < upper[..],
            Bound::Unbounded => true,
        };
        above && below
    };
    let rows = merged
        .into_iter()
        .filter(|(key, _)| inside(key))
        .filter_map(|(key, value)| Some((key, value?)));
    let mut rows: Vec<_> = rows.collect();
    if direction == Direction::Backward {
        rows.reverse();
    }
    rows
}

fn plain(rows: impl Iterator<Item = Result<(Key, RowBytes), RowReadError>>) -> Vec<(Vec<u8>, u8)> {
    rows.map(|row| row.map(|(key, value)| (key.to_vec(), value[0])).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn merged_layers_read_like_one_map(
        layers in layers(), lower in bounds(), upper in bounds(), direction in directions(),
    ) {
        let range = KeyRange { lower, upper };
        let generations: Vec<_> = layers.iter().map(generation).collect();
        let sources = generations.iter().map(|rows| layer(rows, TABLE, &range, direction)).collect();
        prop_assert_eq!(plain(Merged::new(sources, direction)), model(&layers, &range, direction));
    }

    #[test]
    fn a_bounded_copy_of_the_upper_layers_is_enough(
        layers in layers(), lower in bounds(), upper in bounds(), direction in directions(), limit in 0..6usize,
    ) {
        let range = KeyRange { lower, upper };
        let generations: Vec<_> = layers.iter().map(generation).collect();
        let (above, below) = generations.split_at(generations.len() - 1);
        let sources = above.iter().map(|rows| layer(rows, TABLE, &range, direction)).collect();
        let copied = copy_up_to_limit(MergedSlots::new(sources, direction), limit).unwrap();
        let copied: Layer<'_> = Box::new(copied.into_iter().map(Ok));
        let merged = Merged::new(vec![copied, layer(&below[0], TABLE, &range, direction)], direction);
        let expected: Vec<_> = model(&layers, &range, direction).into_iter().take(limit).collect();
        prop_assert_eq!(plain(merged.take(limit)), expected);
    }

    #[test]
    fn a_generation_counts_its_bytes_back_to_zero(rows in proptest::collection::vec((keys(), any::<u8>(), 0..3u8), 0..40)) {
        let mut generation = Generation::new(1);
        let mut undo = Vec::new();
        for (key, byte, kind) in &rows {
            let key = Key::from(&key[..]);
            let value = RowBytes::from(vec![0; usize::from(*byte)]);
            let slot = match kind {
                0 => Slot::Put(value),
                1 => Slot::New(value),
                _ => Slot::Deleted,
            };
            let old = generation.insert(TABLE, key.clone(), slot);
            undo.push((key, old));
        }
        for (key, old) in undo.into_iter().rev() {
            generation.restore(TABLE, key, old);
        }
        prop_assert!(generation.is_empty() && generation.bytes() == 0);
    }
}

#[test]
fn an_error_of_a_layer_is_told_once_and_ends_the_range() {
    let good = generation(&BTreeMap::from([(vec![1], Some(1)), (vec![3], Some(3))]));
    let bad: Layer<'_> = Box::new(
        [
            Ok((Key::from([2]), Slot::Put(RowBytes::from([2])))),
            Err(RowReadError::from(IndexError::Closed)),
        ]
        .into_iter(),
    );
    let layers = vec![layer(&good, TABLE, &KeyRange::all(), Direction::Forward), bad];
    let rows: Vec<_> = Merged::new(layers, Direction::Forward).map(|row| row.is_ok()).collect();
    assert_eq!(rows, [true, false]);
}
