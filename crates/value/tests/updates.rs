//! Costs of an update: only the changed path is encoded, and only that must be stored.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use catena_value::{
    CellSource, CellsInMemory, LoadError, Map, NoCells, Value, ValueId, Vector, decode, encode,
    encoded_cells, new_cells,
};

/// Number of cells encoded while `work` runs.
fn encodings(work: impl FnOnce()) -> u64 {
    let before = encoded_cells();
    work();
    encoded_cells() - before
}

/// Allowed number of encoded cells for one change along one path.
const PATH_ENCODINGS: u64 = 8;

#[test]
fn appending_to_a_long_vector_encodes_a_path() {
    let mut vector: Vector = (0..100_000).map(Value::from).collect();
    Value::from(vector.clone()).id();
    // Long enough to fill tails and to push chunks through several levels.
    for n in 0..600 {
        let count = encodings(|| {
            vector = vector.push(Value::from(n), &NoCells).unwrap();
            Value::from(vector.clone()).id();
        });
        assert!((1..=PATH_ENCODINGS).contains(&count), "append {n} encoded {count} cells");
    }
}

#[test]
fn changing_an_element_of_a_long_vector_encodes_a_path() {
    let mut vector: Vector = (0..100_000).map(Value::from).collect();
    Value::from(vector.clone()).id();
    for at in (0..100_000).step_by(997) {
        let count = encodings(|| {
            vector = vector.set(at, Value::from("x"), &NoCells).unwrap().unwrap();
            Value::from(vector.clone()).id();
        });
        assert!((1..=PATH_ENCODINGS).contains(&count), "change at {at} encoded {count} cells");
    }
}

#[test]
fn inserting_into_a_large_map_encodes_a_path() {
    let mut map: Map = (0..100_000).map(|i| (format!("k{i}"), i)).collect();
    Value::from(map.clone()).id();
    let mut splits = 0;
    for n in 0..600 {
        let count = encodings(|| {
            map = map.insert(format!("new {n}").into(), n.into(), &NoCells).unwrap();
            Value::from(map.clone()).id();
        });
        // A sixteenth entry turns a leaf into a tree, and each of its new leaves is new work.
        let split = count > PATH_ENCODINGS;
        splits += u64::from(split);
        let new_leaves_max = if split { 16 } else { 0 };
        assert!(
            (1..=PATH_ENCODINGS + new_leaves_max).contains(&count),
            "insert {n}: {count} cells"
        );
    }
    assert!(splits <= 12, "{splits} of 600 inserts split a leaf; about one in a hundred should");
}

#[test]
fn embedded_siblings_of_a_change_are_not_encoded_again() {
    let small = |i: i64| Value::from([("n", i)].into_iter().collect::<Map>());
    let mut vector: Vector = (0..10_000).map(small).collect();
    Value::from(vector.clone()).id();
    let count = encodings(|| {
        vector = vector.set(5_000, small(-1), &NoCells).unwrap().unwrap();
        Value::from(vector.clone()).id();
    });
    assert!(count <= PATH_ENCODINGS, "{count} cells");
}

/// A source that counts the cells it loads.
struct Counting {
    cells: CellsInMemory,
    loads: std::cell::Cell<u64>,
}

impl CellSource for Counting {
    fn load(&self, id: &ValueId) -> Result<Value, LoadError> {
        self.loads.set(self.loads.get() + 1);
        self.cells.load(id)
    }
}

/// Stores a value and returns it with only its root in memory.
fn stored(value: &Value) -> (Counting, Value) {
    let mut cells = CellsInMemory::default();
    new_cells(value, |_| false).iter().for_each(|cell| {
        cells.insert(&cell.bytes);
    });
    (Counting { cells, loads: Default::default() }, decode(&encode(value)).unwrap())
}

#[test]
fn an_update_of_a_stored_value_loads_and_stores_one_path() {
    let map: Map = (0..100_000).map(|i| (format!("k{i}"), i)).collect();
    let (source, root) = stored(&map.into());
    let Value::Map(map) = root else { panic!("not a map") };
    let changed = Value::from(map.insert("k77".into(), "changed".into(), &source).unwrap());
    assert!(source.loads.get() <= 6, "{} cells loaded", source.loads.get());
    let new = new_cells(&changed, |_| false);
    assert!(new.len() <= 6, "{} new cells", new.len());

    let vector: Vector = (0..100_000).map(Value::from).collect();
    let (source, root) = stored(&vector.into());
    let Value::Vector(vector) = root else { panic!("not a vector") };
    let changed = Value::from(vector.push("new".into(), &source).unwrap());
    assert!(source.loads.get() <= 6, "{} cells loaded", source.loads.get());
    assert!(new_cells(&changed, |_| false).len() <= 6);
}

#[test]
fn a_page_of_a_stored_map_loads_the_cells_of_the_page() {
    let whole: Map = (0..100_000).map(|i| (format!("k{i}"), "x".repeat(200))).collect();
    let all: Vec<Value> = whole.iter(&NoCells).map(|entry| entry.unwrap().0).collect();
    let (source, root) = stored(&whole.into());
    let Value::Map(map) = root else { panic!("not a map") };
    for start in [0, 1, 15, 16, 50_000, 99_990, 100_000] {
        source.loads.set(0);
        let keys: Vec<Value> =
            map.keys_from(start, &source).take(10).collect::<Result<_, _>>().unwrap();
        let from = usize::try_from(start).unwrap();
        assert_eq!(keys, all[from..(from + 10).min(all.len())], "from {start}");
        assert!(source.loads.get() <= 90, "{} cells loaded from {start}", source.loads.get());
    }
    let values = map.iter_from(77_777, &source).take(3);
    let keys: Vec<Value> = values.map(|entry| entry.unwrap().0).collect();
    assert_eq!(keys, all[77_777..77_780]);
}

#[test]
fn cells_that_a_store_has_are_not_returned_again() {
    let map: Map = (0..1_000).map(|i| (format!("k{i}"), i)).collect();
    let (source, _) = stored(&map.clone().into());
    let changed = Value::from(map.insert("new".into(), 1.into(), &NoCells).unwrap());
    let all = new_cells(&changed, |_| false).len();
    let new = new_cells(&changed, |id| source.cells.load(id).is_ok()).len();
    assert!(all > 10, "{all}");
    assert!(new <= 6, "{new}");
}

#[test]
fn a_missing_or_wrong_cell_is_an_error() {
    let map: Map = (0..1_000).map(|i| (format!("k{i}"), i)).collect();
    let (_, root) = stored(&map.into());
    let Value::Map(map) = root else { panic!("not a map") };
    let error = map.get(&"k1".into(), &NoCells).unwrap_err();
    assert!(matches!(error, LoadError::Missing { .. }), "{error}");

    struct Wrong;
    impl CellSource for Wrong {
        fn load(&self, _: &ValueId) -> Result<Value, LoadError> {
            Ok(Value::from("not a map"))
        }
    }
    let error = map.get(&"k1".into(), &Wrong).unwrap_err();
    assert!(matches!(error, LoadError::Misplaced { .. }), "{error}");
}
