//! Costs of the core operations, to be compared within one run.
//!
//! `cargo bench -p catena-value` measures; `cargo test -p catena-value --benches` runs each
//! workload once. Every workload prints the ID of its final value, so that it cannot become
//! faster by doing something else.
#![allow(clippy::print_stdout, missing_docs, reason = "a benchmark reports on standard output")]

use std::hint::black_box;

use catena_value::{Map, NoCells, Value, ValueId, Vector, encode, json};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};

/// A state record of about 250 bytes once encoded, from parts as the engine has them.
fn record(updated: i64) -> Map {
    let output: Map = [("text", "hello, this is the answer")].into_iter().collect();
    let note: [(&str, Value); 7] = [
        ("status", "COMPLETE".into()),
        ("prev", "0xeea86197d55af7d80443163902b08a2140e3d0a8fda4deb44cf33fa02bbf2078".into()),
        ("output", output.into()),
        ("message", "finished without warnings".into()),
        ("by", "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnE".into()),
        ("attempt", 1.into()),
        ("updated", updated.into()),
    ];
    note.into_iter().collect()
}

/// A document of about 600 bytes: nested, with strings, numbers and a list.
const DOCUMENT: &str = r#"{"operation":"v/ops/http/get","input":{"url":"https://example.org/data/2026/measurements.json","headers":{"accept":"application/json","x-request-id":"7f3a9c1e-0b52-4d0e-9a63-1f1f6b1f2c11"},"retries":3,"timeoutMs":30000,"verify":true,"proxy":null},"tags":["import","nightly","measurements"],"limits":{"memoryMb":512,"cpuMs":30000,"ratio":0.75},"points":[[1,2.5],[2,3.75],[3,5.125],[4,6.0]],"note":"Imports the measurements of the last day and keeps what changed since the run before, \"as is\".","created":1769683717706,"caller":"did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"}"#;

fn record_id(c: &mut Criterion) {
    let encoding = encode(&record(1_769_683_717_710).into());
    println!("record: {} bytes, {}", encoding.len(), ValueId::of_encoding(&encoding));
    let mut group = c.benchmark_group("record");
    group.bench_function("hash of its encoding alone", |b| {
        b.iter(|| ValueId::of_encoding(black_box(&encoding)));
    });
    group.bench_function("encode and hash", |b| {
        let make = || Value::from(record(1_769_683_717_710));
        b.iter_batched(make, |record| record.id(), BatchSize::SmallInput);
    });
    group.bench_function("build, encode and hash", |b| {
        b.iter(|| Value::from(record(black_box(1_769_683_717_710))).id());
    });
    group.finish();
}

fn read_json(c: &mut Criterion) {
    let value = json::read(DOCUMENT.as_bytes()).expect("the document is valid");
    println!("document: {} bytes, {}", DOCUMENT.len(), value.id());
    let mut group = c.benchmark_group("json");
    group.bench_function("serde_json to its own tree", |b| {
        b.iter(|| serde_json::from_slice::<serde_json::Value>(black_box(DOCUMENT.as_bytes())));
    });
    group.bench_function("to a value", |b| {
        b.iter(|| json::read(black_box(DOCUMENT.as_bytes())));
    });
    group.bench_function("from a value", |b| {
        b.iter(|| json::to_string(black_box(&value)));
    });
    group.finish();
}

fn updates(c: &mut Criterion) {
    let mut group = c.benchmark_group("update");
    for size in [1_000i64, 100_000] {
        let vector: Vector = (0..size).map(Value::from).collect();
        let map: Map = (0..size).map(|i| (format!("k{i}"), i)).collect();
        println!("{size}: {} {}", Value::from(vector.clone()).id(), Value::from(map.clone()).id());
        group.bench_function(format!("append sixteen to a vector of {size}"), |b| {
            b.iter(|| {
                (0..16).fold(vector.clone(), |vector, n| {
                    let vector = vector.push(n.into(), &NoCells).expect("all in memory");
                    Value::from(vector.clone()).id();
                    vector
                })
            });
        });
        let mut n = 0u64;
        group.bench_function(format!("insert into a map of {size}"), |b| {
            b.iter(|| {
                n += 1;
                let key = Value::from(format!("new {n}"));
                let map = map.insert(key, 1.into(), &NoCells).expect("all in memory");
                Value::from(map).id()
            });
        });
    }
    group.finish();
}

criterion_group!(core, record_id, read_json, updates);
criterion_main!(core);
