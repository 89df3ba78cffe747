//! Images, audio and documents in the result of a call.
//!
//! The output schema says what they are, with the annotations of JSON Schema: a text with
//! `contentMediaType`, and `contentEncoding: "base64"` if it stands for bytes. The output itself, or a
//! member of it, is then also returned as content that a client can show. The structured output has it
//! as it is, so nothing is lost for clients that ignore it.

use catena_value::{CellSource, Map, NoCells, Value};

use crate::limits::MCP_MEDIA_MAX;
use crate::values::object;

/// What an output contains besides its JSON.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Media {
    /// The content.
    pub(super) content: Vec<Value>,
    /// Whether the content is the entire output, so that its JSON has nothing to add.
    pub(super) is_everything: bool,
}

/// The content for an output whose parts are loaded from `cells`. `schema` is that of the operation's
/// output, `uri` names the output.
pub(super) fn of_output(
    schema: Option<&Value>,
    output: &Value,
    cells: &dyn CellSource,
    uri: &str,
) -> Media {
    let Some(schema) = schema.and_then(Value::as_map) else { return Media::default() };
    match content(schema, output, cells, uri) {
        Some(content) => Media { content: vec![content], is_everything: true },
        None => Media { content: of_members(schema, output, cells, uri), is_everything: false },
    }
}

fn of_members(schema: &Map, output: &Value, cells: &dyn CellSource, uri: &str) -> Vec<Value> {
    let properties = schema.field("properties").and_then(Value::as_map);
    let (Some(properties), Some(members)) = (properties, output.as_map()) else {
        return Vec::new();
    };
    // In the order of the names, because objects have none.
    let mut named: Vec<(String, Value)> = properties
        .iter(&NoCells)
        .flatten()
        .filter_map(|(name, schema)| Some((name.to_text()?.into_owned(), schema)))
        .collect();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    let found = named.iter().filter_map(|(name, schema)| {
        content(schema.as_map()?, members.field(name)?, cells, &format!("{uri}/{name}"))
    });
    found.take(MCP_MEDIA_MAX).collect()
}

/// The content for a text whose schema names its media type.
fn content(schema: &Map, value: &Value, cells: &dyn CellSource, uri: &str) -> Option<Value> {
    let media = schema.field("contentMediaType")?.as_str()?;
    let text = value.fully_loaded(cells).ok()?.to_text()?.into_owned();
    let encoding = schema.field("contentEncoding").and_then(Value::as_str);
    let is_base64 = encoding.is_some_and(|encoding| encoding.eq_ignore_ascii_case("base64"));
    let kind = media.split('/').next().unwrap_or_default();
    if is_base64 && (kind == "image" || kind == "audio") {
        let members =
            [("type", Value::from(kind)), ("data", text.into()), ("mimeType", media.into())];
        return Some(object(members));
    }
    let body = if is_base64 { "blob" } else { "text" };
    let resource = [("uri", Value::from(uri)), ("mimeType", media.into()), (body, text.into())];
    Some(object([("type", Value::from("resource")), ("resource", object(resource))]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Value {
        catena_value::json::read(text.as_bytes()).unwrap()
    }

    fn check(schema: &str, output: &str, expected: &[&str]) {
        let found = of_output(Some(&json(schema)), &json(output), &NoCells, "x").content;
        let expected: Vec<Value> = expected.iter().map(|text| json(text)).collect();
        assert_eq!(found, expected, "{schema}");
    }

    #[test]
    fn a_schema_says_what_is_an_image_a_sound_or_a_document() {
        let png = r#"{"contentMediaType":"image/png","contentEncoding":"base64"}"#;
        let image = r#"{"type":"image","data":"AAAA","mimeType":"image/png"}"#;
        check(png, r#""AAAA""#, &[image]);
        check(png, "7", &[]);
        check("true", r#""AAAA""#, &[]);
        check(r#"{"type":"string"}"#, r#""AAAA""#, &[]);
        check(
            r#"{"contentMediaType":"text/csv"}"#,
            r#""a,b""#,
            &[r#"{"type":"resource","resource":{"uri":"x","mimeType":"text/csv","text":"a,b"}}"#],
        );
        let members = format!(
            r#"{{"properties":{{"plot":{png},"note":{{"type":"string"}},
                "file":{{"contentMediaType":"application/pdf","contentEncoding":"base64"}}}}}}"#
        );
        check(
            &members,
            r#"{"plot":"AAAA","note":"n","file":"BBBB"}"#,
            &[
                r#"{"type":"resource","resource":{"uri":"x/file","mimeType":"application/pdf","blob":"BBBB"}}"#,
                image,
            ],
        );
    }
}
