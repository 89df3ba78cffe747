//! Generated schemas and values: neither a compilation nor a check overflows the stack of its thread,
//! takes long, or uses more memory than was estimated before it.
//!
//! The generator is seeded, so a failure can be repeated: the message names the seed. It prefers what
//! is expensive: references in all forms, to definitions that exist and to ones that do not,
//! combinations, `unevaluated…` keywords, patterns, secrets, and many of them at once.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]
#![allow(clippy::print_stdout, reason = "a run says how many schemas were accepted")]

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use catena_engine::limits::{COMPUTE_STACK_BYTES, VIOLATION_COPIES_BYTES_MAX};
use catena_engine::operations::schema::{Schema, from_serde};
use peak_alloc::PeakAlloc;
use serde_json::{Map, Value as Json, json};

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// The tests measure the allocator of the process, so they run one after the other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Schemas that are generated.
const CASES: u64 = 1_000;

/// The longest time of one compilation or check, without optimisation.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Memory that a compilation or a check may use in addition to its bound: the libraries' own caches,
/// and the JSON of schema and value, which takes up to 30 bytes for each byte of its text (1 MiB).
const OTHER_BYTES: usize = 40 * 1024 * 1024;

/// A small generator of random numbers: xorshift64*.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 8
    }

    fn below(&mut self, end: u64) -> usize {
        usize::try_from(self.next() % end.max(1)).unwrap()
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64)].clone()
    }
}

/// How large a case is.
struct Size {
    /// The definitions of the schema.
    definitions: usize,
    /// The subschemas of one keyword.
    width: u64,
    depth: usize,
    /// The schemas that may still be made of keywords.
    left: Cell<usize>,
}

const NAMES: [&str; 6] = ["a", "b", "c", "key", "items", "$ref"];
const PATTERNS: [&str; 7] = [
    "^a+$",
    "(a|b){1,20}c",
    "(x+x+)+y",
    "(?=a)(a+)+$",
    "(\\w+)\\1",
    "[a-z]{3,9}",
    "((a{9}){9}){9}",
];

fn reference(random: &mut Random, size: &Size) -> String {
    let to = random.below(size.definitions as u64 + 1);
    match random.below(9) {
        0 => "#".to_owned(),
        1 => format!("#a{to}"),
        2 => format!("r{to}"),
        3 => format!("http://x/r{to}#a{to}"),
        4 => "https://json-schema.org/draft/2020-12/schema".to_owned(),
        _ => format!("#/$defs/d{to}"),
    }
}

fn subschemas(random: &mut Random, size: &Size, depth: usize) -> Json {
    let count = 1 + random.below(size.width);
    Json::Array((0..count).map(|_| schema(random, size, depth)).collect())
}

fn named(random: &mut Random, size: &Size, depth: usize) -> Json {
    let count = 1 + random.below(size.width);
    let mut member = |n: usize| {
        let name = if n < NAMES.len() { NAMES[n].to_owned() } else { format!("m{n}") };
        (name, schema(random, size, depth))
    };
    Json::Object((0..count).map(&mut member).collect())
}

fn schema(random: &mut Random, size: &Size, depth: usize) -> Json {
    let left = size.left.get();
    size.left.set(left.saturating_sub(1));
    if depth == 0 || left == 0 || random.below(12) == 0 {
        return random.pick(&[
            json!(true),
            json!({}),
            json!({"type": "object"}),
            json!({"writeOnly": true}),
        ]);
    }
    let below = depth - 1;
    let mut keywords = Map::new();
    for _ in 0..=random.below(3) {
        let keyword = random.below(24);
        let (name, value) = match keyword {
            0..=4 => ("$ref", json!(reference(random, size))),
            5 => ("$dynamicRef", json!(format!("#a{}", random.below(size.definitions as u64)))),
            6 | 7 => ("allOf", subschemas(random, size, below)),
            8 => ("anyOf", subschemas(random, size, below)),
            9 => ("oneOf", subschemas(random, size, below)),
            10 => ("not", schema(random, size, below)),
            11 => ("if", schema(random, size, below)),
            12 => ("properties", named(random, size, below)),
            13 => ("dependentSchemas", named(random, size, below)),
            14 => ("additionalProperties", schema(random, size, below)),
            15 => ("unevaluatedProperties", schema(random, size, below)),
            16 => ("unevaluatedItems", schema(random, size, below)),
            17 => ("items", schema(random, size, below)),
            18 => ("contains", schema(random, size, below)),
            19 => ("propertyNames", schema(random, size, below)),
            20 => ("pattern", json!(random.pick(&PATTERNS))),
            21 => {
                ("patternProperties", json!({random.pick(&PATTERNS): schema(random, size, below)}))
            }
            22 => ("prefixItems", subschemas(random, size, below)),
            _ => ("writeOnly", json!(true)),
        };
        keywords.insert(name.to_owned(), value);
    }
    Json::Object(keywords)
}

fn document(random: &mut Random) -> Json {
    let size = Size {
        definitions: random.pick(&[1, 3, 10, 60]),
        width: random.pick(&[1, 2, 4, 30]),
        depth: random.pick(&[1, 2, 3, 6]),
        left: Cell::new(random.pick(&[30, 300, 3_000])),
    };
    let mut root = match schema(random, &size, size.depth) {
        Json::Object(keywords) => keywords,
        _ => Map::new(),
    };
    let mut definitions = Map::new();
    for n in 0..size.definitions {
        let mut definition = schema(random, &size, size.depth.min(2));
        if let Some(keywords) = definition.as_object_mut() {
            match random.below(4) {
                0 => keywords.insert("$anchor".to_owned(), json!(format!("a{n}"))),
                1 => keywords.insert("$dynamicAnchor".to_owned(), json!(format!("a{n}"))),
                2 => keywords.insert("$id".to_owned(), json!(format!("http://x/r{n}"))),
                _ => None,
            };
        }
        definitions.insert(format!("d{n}"), definition);
    }
    root.insert("$defs".to_owned(), Json::Object(definitions));
    Json::Object(root)
}

fn instance(random: &mut Random, depth: usize) -> Json {
    let count = random.pick(&[0, 1, 3, 20]);
    match random.below(if depth == 0 { 3 } else { 6 }) {
        0 => json!(random.below(100)),
        1 => Json::String("a".repeat(random.pick(&[0, 1, 30, 3_000]))),
        2 => Json::Null,
        3 => Json::Array((0..count).map(|_| instance(random, depth - 1)).collect()),
        _ => {
            let mut member = |n: usize| {
                (
                    NAMES.get(n).map_or_else(|| format!("m{n}"), ToString::to_string),
                    instance(random, depth - 1),
                )
            };
            Json::Object((0..count).map(&mut member).collect())
        }
    }
}

/// Runs work and checks its time and its memory.
#[expect(clippy::disallowed_methods, reason = "the time that the work takes is what is tested")]
fn measured<T>(what: &str, work: impl FnOnce() -> T, bytes: impl Fn(&T) -> u64) -> T {
    let before = ALLOCATED.current_usage();
    ALLOCATED.reset_peak_usage();
    let begun = std::time::Instant::now();
    let done = work();
    let time = begun.elapsed();
    let used = ALLOCATED.peak_usage().saturating_sub(before);
    assert!(time < TIME_MAX, "{what} took {time:?}");
    if time > TIME_MAX / 20 {
        println!("{what} took {time:?}");
    }
    let allowed = usize::try_from(bytes(&done)).unwrap() + OTHER_BYTES;
    assert!(used < allowed, "{what} used {used} bytes, not less than {allowed}");
    done
}

/// One case: a schema and some values. Returns true if the schema was accepted.
fn check(seed: u64) -> bool {
    let mut random = Random::new(seed);
    let schema = from_serde(&document(&mut random));
    let compile = || Schema::compile(&schema);
    let estimate = |compiled: &Result<Schema, String>| compiled.as_ref().map_or(0, Schema::bytes);
    let Ok(compiled) = measured(&format!("compilation {seed}"), compile, estimate) else {
        return false;
    };
    for _ in 0..4 {
        let value = from_serde(&instance(&mut random, 3));
        let listed = measured(
            &format!("check {seed}"),
            || compiled.violations(&value, 5),
            |_| 2 * VIOLATION_COPIES_BYTES_MAX,
        );
        // Whether it is valid does not depend on the thread.
        if let Some(inline) = compiled.violations_inline(&value, 5) {
            assert_eq!(inline, listed, "check {seed}");
        }
    }
    true
}

#[test]
fn generated_schemas_are_compiled_and_checked_within_their_bounds() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let fuzz = || (0..CASES).filter(|seed| check(*seed)).count();
    let thread = std::thread::Builder::new().stack_size(COMPUTE_STACK_BYTES).spawn(fuzz).unwrap();
    let accepted = thread.join().unwrap();
    println!("{accepted} of {CASES} schemas were accepted");
    assert!(accepted as u64 > CASES / 10, "only {accepted} schemas were accepted");
}

/// A chain of definitions is as long as a schema may be, and is dropped on a thread with a stack of
/// the usual size.
#[test]
fn the_longest_schema_can_be_dropped_anywhere() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for end in [json!({}), json!({"$ref": "#"}), json!({"$ref": "#/$defs/d0"})] {
        let mut definitions: Map<String, Json> = Map::new();
        for n in 0..12_000 {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            definitions.insert(format!("d{n}"), json!({"properties": {"a": next}}));
        }
        definitions.insert("d12000".to_owned(), json!({"properties": {"a": end}}));
        let schema =
            from_serde(&json!({"$defs": definitions, "properties": {"a": {"$ref": "#/$defs/d0"}}}));
        let compile = move || Schema::compile(&schema).unwrap();
        let thread = std::thread::Builder::new().stack_size(COMPUTE_STACK_BYTES);
        let compiled = measured(
            "the longest chain",
            || thread.spawn(compile).unwrap().join().unwrap(),
            Schema::bytes,
        );
        drop(compiled);
    }
}

/// The deepest chain that is accepted, in every form, needs a fraction of the stack.
#[test]
fn the_deepest_schemas_that_are_accepted_fit_an_eighth_of_the_stack() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let forms: [fn(&Json) -> Json; 5] = [
        |next| json!({"allOf": [next]}),
        |next| json!({"not": next, "unevaluatedItems": {}}),
        |next| json!({"allOf": [next], "unevaluatedProperties": false}),
        |next| json!({"if": next, "dependentSchemas": {"a": next}, "unevaluatedProperties": {}}),
        |next| json!({"properties": {"a": next}, "additionalProperties": next}),
    ];
    let deepest = move || {
        let mut accepted = 0;
        for form in forms {
            for len in [3, 30, 60, 62, 100, 126] {
                let reference = |n: usize| json!({"$ref": format!("#/$defs/d{n}")});
                let mut definitions: Map<String, Json> =
                    (0..len).map(|n| (format!("d{n}"), form(&reference(n + 1)))).collect();
                definitions.insert(format!("d{len}"), json!({"type": "object"}));
                let schema = json!({"$defs": definitions, "$ref": "#/$defs/d0"});
                let Ok(schema) = Schema::compile(&from_serde(&schema)) else { continue };
                accepted += 1;
                schema.violations(&from_serde(&json!({"a": {"a": {"a": 1}}})), 5);
            }
        }
        accepted
    };
    let thread = std::thread::Builder::new().stack_size(COMPUTE_STACK_BYTES / 8);
    assert!(thread.spawn(deepest).unwrap().join().unwrap() >= 10);
}
