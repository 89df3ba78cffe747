//! Demo assets that every venue has.
//!
//! Their metadata is constant and determines their IDs, so the IDs are the same on every venue.

use catena_value::Value;

use crate::definition::parse_constant;

const IRIS: &[u8] = include_bytes!("../assets/iris.csv");

const IRIS_METADATA: &str = r#"{
    "name":"Iris Dataset",
    "type":"dataset",
    "description":"Sepal and petal measurements, in centimetres, of 50 flowers of each of three species of iris.",
    "creator":"Ronald A. Fisher, Edgar Anderson",
    "dateCreated":"1936",
    "license":{"name":"CC0 1.0","url":"https://creativecommons.org/publicdomain/zero/1.0/"},
    "keywords":["iris","flowers","classification"],
    "content":{"contentType":"text/csv","fileName":"iris.csv",
        "sha256":"9cc1c345c71bcc9b486b74cbf6063fa66f4bb5e0f603a4b3c3471ec2e5e8e355"}}"#;

const SONNETS: &[u8] = include_bytes!("../assets/sonnets.txt");

const SONNETS_METADATA: &str = r#"{
    "name":"Two Sonnets",
    "type":"text",
    "description":"Sonnets 18 and 116 by William Shakespeare.",
    "creator":"William Shakespeare",
    "dateCreated":"1609",
    "license":{"name":"Public domain","url":"https://creativecommons.org/publicdomain/mark/1.0/"},
    "keywords":["shakespeare","sonnet","poetry"],
    "content":{"contentType":"text/plain","fileName":"sonnets.txt",
        "sha256":"3f77916e1f03060037ed0ad2537f0cbfcb32424db2af48180a811bd882ed1c73"}}"#;

const GREETING: &str = r#"{
    "name":"Greeting Pipeline",
    "type":"orchestration",
    "description":"Three steps: chooses a greeting by language, notes it beside the person, puts the sentence together.",
    "operation":{
        "adapter":"orchestrator",
        "input":{"type":"object","required":["name","language"],"properties":{
            "name":{"type":"string","description":"Whom to greet"},
            "language":{"type":"string","description":"en, de, fr or it"}}},
        "output":{"type":"object","required":["text","person"],"properties":{
            "text":{"type":"string"},"person":{"type":"object"}}},
        "steps":[
            {"op":"json:select","name":"Choose the greeting","input":{
                "key":["input","language"],
                "cases":["const",{"en":"Hello","de":"Guten Tag","fr":"Bonjour","it":"Buongiorno"}],
                "default":["const","Hello"]}},
            {"op":"json:assoc","name":"Note it","input":{
                "target":["input"],"path":["const","greeting"],"value":[0,"result"]}},
            {"op":"test:echo","name":"Put it together","input":{
                "text":["concat",[0,"result"],["const",", "],["input","name"],["const","!"]],
                "person":[1,"result"]}}],
        "result":{"text":[2,"text"],"person":[2,"person"]}}}"#;

/// The metadata of each asset, and its content if it has any.
pub fn demo_assets() -> Vec<(Value, Option<&'static [u8]>)> {
    vec![
        (parse_constant(IRIS_METADATA), Some(IRIS)),
        (parse_constant(SONNETS_METADATA), Some(SONNETS)),
        (parse_constant(GREETING), None),
    ]
}

#[cfg(test)]
mod tests {
    use catena_job::plan::Plan;
    use sha2::{Digest, Sha256};

    use super::*;

    fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
        value.as_map().and_then(|map| map.field(name))
    }

    #[test]
    fn the_content_has_the_digest_in_the_metadata() {
        for (metadata, content) in demo_assets() {
            let Some(content) = content else { continue };
            let declared = field(field(&metadata, "content").unwrap(), "sha256").unwrap();
            let found: String =
                Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(declared.as_str(), Some(found.as_str()), "{metadata:?}");
        }
    }

    #[test]
    fn the_iris_dataset_is_complete() {
        let (metadata, content) = demo_assets().remove(0);
        assert_eq!(field(&metadata, "name").unwrap().as_str(), Some("Iris Dataset"));
        let text = str::from_utf8(content.unwrap()).unwrap();
        let mut lines = text.lines();
        let header = "sepal_length,sepal_width,petal_length,petal_width,species";
        assert_eq!(lines.next(), Some(header));
        let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
        assert_eq!(rows.len(), 150);
        for species in ["setosa", "versicolor", "virginica"] {
            assert_eq!(rows.iter().filter(|row| row[4] == species).count(), 50);
        }
        let lengths = rows.iter().map(|row| row[0].parse::<f64>().unwrap());
        // The known mean of the sepal lengths.
        assert!((lengths.sum::<f64>() / 150.0 - 5.843_333).abs() < 1e-5);
    }

    #[test]
    fn the_orchestration_is_valid() {
        let (metadata, _) = demo_assets().remove(2);
        let plan = Plan::parse(&metadata).unwrap();
        assert_eq!(plan.steps.len(), 3);
    }
}
