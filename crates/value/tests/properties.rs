//! Properties of every value.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use std::collections::{BTreeMap, BTreeSet};

use catena_value::{
    Blob, CellsInMemory, Character, Coded, Double, Extension, Index, List, Map, Name, NoCells,
    Record, Set, Signed, Syntax, Value, Vector, decode, decode_message, decode_slot, encode,
    encode_message, encode_slot, json, new_cells,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Any value of any kind, with sizes around the limits where shapes change.
fn any_value() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        4 => ".{0,30}",
        1 => "[a-zé€😀]{130,150}",
        1 => (4_090usize..4_105).prop_map(|n| "é".repeat(n / 2) + &"x".repeat(n % 2)),
    ];
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::Bool),
        (2u8..16).prop_map(Value::Flag),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(|bits| Value::Double(Double::from_bits(bits))),
        (0u32..=0x10_ffff).prop_map(|code| Value::Character(Character::new(code).unwrap())),
        text.prop_map(Value::from),
        vec(any::<u8>(), 0..200).prop_map(|bytes| Value::Blob(Blob::from_bytes(&bytes))),
        "[a-z]{1,128}".prop_map(|name| Value::Keyword(Name::new(name.as_bytes()).unwrap())),
        "[a-z]{1,128}".prop_map(|name| Value::Symbol(Name::new(name.as_bytes()).unwrap())),
        (0u8..16, 0..u64::MAX / 2)
            .prop_map(|(kind, number)| { Value::Extension(Extension::new(kind, number).unwrap()) }),
        "-?[1-9][0-9]{18,400}".prop_map(|digits| json::read(digits.as_bytes()).unwrap()),
    ];
    leaf.prop_recursive(4, 200, 40, |inner| {
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            vec(inner.clone(), 0..40).prop_map(|items| Value::Vector(Vector::from_items(items))),
            vec(inner.clone(), 0..20).prop_map(|items| Value::List(List::from_items(items))),
            vec(pair.clone(), 0..40).prop_map(|pairs| pairs.into_iter().collect::<Map>().into()),
            vec(inner.clone(), 0..40).prop_map(|items| items.into_iter().collect::<Set>().into()),
            vec((vec(any::<u8>(), 0..40), inner.clone()), 0..30).prop_map(|entries| {
                entries
                    .into_iter()
                    .map(|(key, value)| (Value::Blob(Blob::from_bytes(&key)), value))
                    .fold(Index::new(), |i, (k, v)| i.insert(k, v, &NoCells).unwrap())
                    .into()
            }),
            (vec(pair.clone(), 0..3), inner.clone()).prop_map(|(metadata, datum)| {
                Value::Syntax(Syntax::new(datum, &metadata.into_iter().collect()))
            }),
            (any::<[u8; 32]>(), inner.clone())
                .prop_map(|(key, value)| Value::Signed(Signed::new(&key, &[7; 64], value))),
            (0u8..16, vec(inner.clone(), 0..20)).prop_map(|(kind, fields)| {
                Value::Record(Record::new(kind, Vector::from_items(fields)).unwrap())
            }),
            (0u8..16, pair).prop_map(|(kind, (code, value))| {
                Value::Coded(Coded::new(kind, code, value).unwrap())
            }),
        ]
    })
}

/// Values that JSON can represent without loss.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::Bool),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |n| n.is_finite()).prop_map(Value::from),
        ".{0,30}".prop_map(Value::from),
        "-?[1-9][0-9]{18,60}".prop_map(|digits| json::read(digits.as_bytes()).unwrap()),
    ];
    leaf.prop_recursive(4, 100, 20, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..40).prop_map(|items| Value::Vector(Vector::from_items(items))),
            vec((".{0,8}", inner), 0..30)
                .prop_map(|pairs| pairs.into_iter().collect::<Map>().into()),
        ]
    })
}

/// All cells of a value, and the value as a store returns it: with only the root in memory.
fn stored(value: &Value) -> (CellsInMemory, Value) {
    let mut cells = CellsInMemory::default();
    for cell in new_cells(value, |_| false) {
        assert_eq!(cells.insert(&cell.bytes), cell.id);
    }
    let root = decode(&encode(value)).unwrap();
    (cells, root)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() })]

    #[test]
    fn decoding_undoes_encoding(value in any_value()) {
        let encoding = encode(&value);
        let decoded = decode(&encoding).unwrap();
        prop_assert_eq!(encode(&decoded), encoding);
        let slot = decode_slot(&encode_slot(&value)).unwrap();
        prop_assert_eq!(slot.id(), value.id());
        let complete = decode_message(&encode_message(&value)).unwrap();
        prop_assert_eq!(complete.id(), value.id());
        prop_assert_eq!(encode_message(&complete).len(), encode_message(&value).len());
    }

    #[test]
    fn equal_values_have_equal_bytes(a in any_value(), b in any_value()) {
        prop_assert_eq!(a == b, encode(&a) == encode(&b));
        let (cells, root) = stored(&a);
        prop_assert!(root == a);
        prop_assert!(root.fully_loaded(&cells).unwrap() == a);
    }

    #[test]
    fn json_reads_back_as_the_same_value(value in json_value()) {
        let text = json::to_string(&value).unwrap();
        let again = json::read(text.as_bytes()).unwrap();
        prop_assert_eq!(again.id(), value.id(), "{}", text);
    }

    #[test]
    fn member_order_and_space_do_not_change_the_id(pairs in vec(("[a-z]{1,3}", any::<i64>()), 0..30)) {
        let unique: BTreeMap<_, _> = pairs.into_iter().collect();
        let member = |(name, n): (&String, &i64)| format!("{name:?}:{n}");
        let forward: Vec<_> = unique.iter().map(member).collect();
        let backward: Vec<_> = unique.iter().rev().map(member).collect();
        let a = json::read(format!("{{{}}}", forward.join(",")).as_bytes()).unwrap();
        let b = json::read(format!(" {{\n{}\t}}", backward.join(" , ")).as_bytes()).unwrap();
        prop_assert_eq!(a.id(), b.id());
    }

    #[test]
    fn a_stored_map_changes_like_one_in_memory(
        start in vec((0u16..400, any::<u8>()), 0..200),
        changes in vec((0u16..400, proptest::option::of(any::<u8>())), 0..60),
    ) {
        let key = |k: u16| Value::from(format!("key {k}"));
        let mut model: BTreeMap<u16, u8> = start.into_iter().collect();
        let complete: Map = model.iter().map(|(k, v)| (key(*k), i64::from(*v))).collect();
        let (cells, root) = stored(&complete.into());
        let Value::Map(mut map) = root else { panic!("not a map") };
        for (k, change) in changes {
            match change {
                Some(v) => {
                    model.insert(k, v);
                    map = map.insert(key(k), i64::from(v).into(), &cells).unwrap();
                }
                None => {
                    model.remove(&k);
                    map = map.remove(&key(k), &cells).unwrap();
                }
            }
            prop_assert_eq!(map.len(), model.len() as u64);
            let held = map.get(&key(k), &cells).unwrap().and_then(|v| v.as_i64());
            prop_assert_eq!(held, model.get(&k).map(|v| i64::from(*v)));
        }
        let expected: Map = model.iter().map(|(k, v)| (key(*k), i64::from(*v))).collect();
        prop_assert_eq!(Value::from(map).id(), Value::from(expected).id());
    }

    #[test]
    fn a_stored_vector_changes_like_one_in_memory(
        len in prop_oneof![0usize..40, 240usize..300, 4_090usize..4_120],
        changes in vec((any::<u16>(), any::<i64>(), any::<bool>()), 0..40),
    ) {
        let mut model: Vec<i64> = (0..len as i64).collect();
        let complete: Vector = model.iter().map(|n| Value::from(*n)).collect();
        let (cells, root) = stored(&complete.into());
        let Value::Vector(mut vector) = root else { panic!("not a vector") };
        for (at, value, push) in changes {
            let at = usize::from(at);
            if push || model.is_empty() {
                model.push(value);
                vector = vector.push(value.into(), &cells).unwrap();
            } else {
                let at = at % model.len();
                model[at] = value;
                vector = vector.set(at as u64, value.into(), &cells).unwrap().unwrap();
                prop_assert_eq!(vector.get(at as u64, &cells).unwrap(), Some(value.into()));
            }
        }
        let items: Vec<i64> = vector.iter(&cells).map(|v| v.unwrap().as_i64().unwrap()).collect();
        prop_assert_eq!(&items, &model);
        let expected: Vector = model.iter().map(|n| Value::from(*n)).collect();
        prop_assert_eq!(Value::from(vector).id(), Value::from(expected).id());
    }

    #[test]
    fn a_stored_index_changes_like_one_in_memory(
        start in vec(vec(0u8..4, 0..5), 0..120),
        changes in vec((vec(0u8..4, 0..5), any::<bool>()), 0..40),
    ) {
        let key = |k: &[u8]| Value::Blob(Blob::from_bytes(k));
        let build = |keys: &BTreeSet<Vec<u8>>| {
            keys.iter().fold(Index::new(), |index, k| index.insert(key(k), key(k), &NoCells).unwrap())
        };
        let mut model: BTreeSet<Vec<u8>> = start.into_iter().collect();
        let (cells, root) = stored(&build(&model).into());
        let Value::Index(mut index) = root else { panic!("not an index") };
        for (k, insert) in changes {
            if insert {
                index = index.insert(key(&k), key(&k), &cells).unwrap();
                model.insert(k);
            } else {
                index = index.remove(&key(&k), &cells).unwrap();
                model.remove(&k);
            }
        }
        let keys: Vec<_> = index.iter(&cells).map(|entry| entry.unwrap().0).collect();
        let expected: Vec<_> = model.iter().map(|k| key(k)).collect();
        prop_assert_eq!(keys, expected);
        prop_assert_eq!(Value::from(index).id(), Value::from(build(&model)).id());
    }
}
