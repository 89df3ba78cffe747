//! Helpers for reading the published vectors: hex, the named generators, and the small part of the
//! reader syntax in which some vectors are written.

use catena_value::{
    Blob, Character, Extension, Index, List, Map, Name, NoCells, Set, Syntax, Value, Vector,
};

pub(crate) fn unhex(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2), "odd number of hex digits: {hex}");
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The value of a named generator.
pub(crate) fn generate(name: &str, n: i64) -> Value {
    let string_abc = || (0..n).map(|i| char::from(b'a' + (i % 26) as u8)).collect::<String>();
    match name {
        "vector_of_ints" => (0..n).map(Value::from).collect::<Vector>().into(),
        "vector_of_nil" => (0..n).map(|_| Value::Nil).collect::<Vector>().into(),
        "vector_of_strings" => numbered("item-", n).collect::<Vector>().into(),
        "list_of_ints" => Value::List(List::from_items((0..n).map(Value::from).collect())),
        "map_str_int" => (0..n).map(|i| (format!("k{i}"), i)).collect::<Map>().into(),
        "map_str_int_rev" => (0..n)
            .rev()
            .fold(Map::new(), |map, i| {
                map.insert(format!("k{i}").into(), i.into(), &NoCells).unwrap()
            })
            .into(),
        "map_int_int" => (0..n).map(|i| (i, i * i)).collect::<Map>().into(),
        "map_str_str" => numbered("key-", n).zip(numbered("value-", n)).collect::<Map>().into(),
        "set_of_ints" => (0..n).map(Value::from).collect::<Set>().into(),
        "set_of_strings" => numbered("item-", n).collect::<Set>().into(),
        "string_a" => Value::from("a".repeat(n as usize)),
        "string_abc" => Value::from(string_abc()),
        "string_euro" => Value::from("\u{20ac}".repeat(n as usize)),
        "blob_pattern" => blob(&(0..n).map(|i| (7 * i + 3) as u8).collect::<Vec<_>>()),
        "blob_zero" => blob(&vec![0; n as usize]),
        "index_blob32" => index((0..n).map(|i| (blob(Value::from(i).id().as_bytes()), i.into()))),
        "index_blob16_ts" => index((0..n).map(|i| (job_key(i), format!("job-{i}").into()))),
        "index_str" => index((0..n).map(|i| (format!("k{i}").into(), i.into()))),
        "nested_vec" => (0..n).fold(Value::Nil, |inner, _| Vector::from_items(vec![inner]).into()),
        "nested_map" => (0..n)
            .fold(Value::Nil, |inner, _| [("child", inner)].into_iter().collect::<Map>().into()),
        other => panic!("unknown generator {other}"),
    }
}

fn numbered(prefix: &str, n: i64) -> impl Iterator<Item = Value> {
    (0..n).map(move |i| Value::from(format!("{prefix}{i}")))
}

fn blob(bytes: &[u8]) -> Value {
    Value::Blob(Blob::from_bytes(bytes))
}

fn job_key(i: i64) -> Value {
    let mut key = (1_769_683_717_710u64 + 1_000 * i as u64).to_be_bytes()[2..].to_vec();
    key.extend_from_slice(&(i as u128).to_be_bytes()[6..]);
    blob(&key)
}

fn index(entries: impl Iterator<Item = (Value, Value)>) -> Value {
    entries
        .fold(Index::new(), |index, (key, value)| index.insert(key, value, &NoCells).unwrap())
        .into()
}

/// Reads one value in reader syntax.
pub(crate) fn read_edn(text: &str) -> Value {
    let mut reader = Edn { rest: text };
    let value = reader.value();
    assert_eq!(reader.rest.trim(), "", "left over in {text}");
    value
}

struct Edn<'a> {
    rest: &'a str,
}

impl<'a> Edn<'a> {
    fn eat(&mut self, prefix: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn until(&mut self, close: &str) -> Vec<Value> {
        let mut values = Vec::new();
        while !self.eat(close) {
            values.push(self.value());
        }
        values
    }

    fn pairs(&mut self) -> impl Iterator<Item = (Value, Value)> + use<'a> {
        let values = self.until("}");
        assert!(values.len().is_multiple_of(2));
        let pairs: Vec<_> =
            values.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        pairs.into_iter()
    }

    fn word(&mut self) -> &'a str {
        let end = self.rest.find([' ', ')', ']', '}', ',']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    fn string(&mut self) -> Value {
        let mut end = 0;
        while !self.rest[end..].starts_with('"') {
            end += if self.rest[end..].starts_with('\\') { 2 } else { 1 };
        }
        let text = self.rest[..end].replace("\\\"", "\"");
        self.rest = &self.rest[end + 1..];
        Value::from(text)
    }

    fn value(&mut self) -> Value {
        if self.eat("#Index {") {
            return index(self.pairs());
        }
        if self.eat("#{") {
            return self.until("}").into_iter().collect::<Set>().into();
        }
        if self.eat("#[") {
            let flag = unhex(self.word())[0];
            assert!(self.eat("]"));
            return Value::Flag(flag & 0x0f);
        }
        if self.eat("^") {
            let Value::Map(metadata) = self.value() else { panic!("metadata is not a map") };
            return Value::Syntax(Syntax::new(self.value(), &metadata));
        }
        if self.eat("{") {
            return self.pairs().collect::<Map>().into();
        }
        if self.eat("[") {
            return self.until("]").into_iter().collect::<Vector>().into();
        }
        if self.eat("(") {
            return Value::List(List::from_items(self.until(")")));
        }
        if self.eat("\"") {
            return self.string();
        }
        if self.eat("0x") {
            return blob(&unhex(self.word()));
        }
        if self.eat("#") {
            let number = self.word().parse().unwrap();
            return Value::Extension(Extension::new(Extension::ADDRESS, number).unwrap());
        }
        if self.eat(":") {
            return Value::Keyword(Name::new(self.word().as_bytes()).unwrap());
        }
        if self.eat("\\") {
            let code = self.word().chars().next().unwrap();
            return Value::Character(Character::new(u32::from(code)).unwrap());
        }
        match self.word() {
            "nil" => Value::Nil,
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            word => match word.parse::<i64>() {
                Ok(number) => Value::from(number),
                Err(_) => Value::Symbol(Name::new(word.as_bytes()).unwrap()),
            },
        }
    }
}
