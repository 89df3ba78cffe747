//! Requests to people, at `h/<id>`: what is asked, and which answers fit.
//!
//! Agents make them with `agent:ask`, and jobs with `jobs:ask`. Either way a request is a map `{id, status,
//! created, question, options?, schema?, answered?, answer?}`, with the agent or the job that it belongs
//! to, and is answered once.

use catena_engine::Failure;
use catena_engine::operations::schema::Schema;
use catena_value::{CellSource, Extent, Map, NoCells, Value};

use crate::fields::{Fields, array, integer, invalid_input, items, load_failure, text};
use crate::limits::{QUESTION_BYTES_MAX, REQUEST_LIST_BYTES_MAX, WORKSPACE_VALUE_DEPTH_MAX};

/// What separates the agent from the rest in the ID of a request. No agent has it in its ID; the ID of a
/// request of a job begins with it.
pub(crate) const SEPARATOR: char = '~';

pub(crate) const OPEN: &str = "OPEN";
pub(crate) const ANSWERED: &str = "ANSWERED";
pub(crate) const CLOSED: &str = "CLOSED";

/// The failure of a request that does not exist.
pub(crate) fn not_found(id: &str) -> Failure {
    Failure::new("request_not_found", format!("there is no request `{id}`"))
}

/// The failure of an answer to a request that is no longer open.
pub(crate) fn not_open(id: &str, status: &str) -> Failure {
    let word = if status == ANSWERED { ANSWERED } else { CLOSED };
    Failure::new("request_answered", format!("request `{id}` is {word}"))
}

/// Returns the members of a new request: its question, and which answers fit.
pub(crate) fn asked(
    id: &str,
    fields: &Fields<'_>,
    now: i64,
) -> Result<Vec<(&'static str, Value)>, Failure> {
    let question = fields.get("question").cloned();
    let question = question.ok_or_else(|| invalid_input("`question` is missing"))?;
    let options = fields.get("options").cloned();
    let schema = fields.get("schema").cloned();
    let bounds = Extent { bytes: QUESTION_BYTES_MAX, depth: WORKSPACE_VALUE_DEPTH_MAX };
    let all = [Some(question.clone()), options.clone(), schema.clone()];
    let all = array(all.into_iter().flatten().collect());
    bounds
        .measure(&all, &NoCells)
        .map_err(|error| invalid_input(format!("the question {error}")))?;
    if let Some(schema) = &schema {
        Schema::compile(schema).map_err(|error| invalid_input(format!("`schema`: {error}")))?;
    }
    let mut members = vec![
        ("id", Value::from(id)),
        ("status", OPEN.into()),
        ("created", now.into()),
        ("question", question),
    ];
    members.extend(options.map(|options| ("options", options)));
    members.extend(schema.map(|schema| ("schema", schema)));
    Ok(members)
}

/// Fails if an answer is none of the options of a request, or does not fit its schema.
pub(crate) fn check_answer(request: &Map, answer: &Value) -> Result<(), Failure> {
    let options = request.field("options").and_then(Value::as_vector).map(items).transpose()?;
    if options.is_some_and(|options| !options.contains(answer)) {
        return Err(invalid_input("`answer` is not one of the options of the request"));
    }
    let Some(schema) = request.field("schema").filter(|schema| !schema.is_nil()) else {
        return Ok(());
    };
    let schema = Schema::compile(schema)
        .map_err(|error| Failure::new("internal", format!("the schema of the request: {error}")))?;
    match schema.violations(answer, 1).first() {
        None => Ok(()),
        Some(violation) => Err(invalid_input(format!("`answer` does not fit: {violation}"))),
    }
}

/// Returns the status of a request.
pub(crate) fn status_of(request: &Map) -> String {
    request.field("status").and_then(text).unwrap_or_default()
}

/// A request as far as it must be read to find it in a list. There can be many with long questions and answers.
pub(crate) struct RequestHead {
    pub(crate) id: String,
    pub(crate) created: i64,
    pub(crate) status: String,
    /// The request, of which only a part may be in memory.
    request: Value,
}

impl RequestHead {
    /// Reads the beginning of a request.
    pub(crate) fn read(request: &Value, cells: &dyn CellSource) -> Result<RequestHead, Failure> {
        let request = request.loaded(cells).map_err(load_failure)?;
        let member = |name: &str| -> Result<Option<Value>, Failure> {
            let Some(map) = request.as_map() else { return Ok(None) };
            let member = map.get(&name.into(), cells).map_err(load_failure)?;
            member.map(|member| member.loaded(cells).map_err(load_failure)).transpose()
        };
        let id = member("id")?.as_ref().and_then(text).unwrap_or_default();
        let created = member("created")?.as_ref().and_then(integer).unwrap_or(0);
        let status = member("status")?.as_ref().and_then(text).unwrap_or_default();
        Ok(RequestHead { id, created, status, request })
    }

    /// Loads the request.
    pub(crate) fn load(&self, cells: &dyn CellSource) -> Result<Map, Failure> {
        let request = self.request.fully_loaded(cells).map_err(load_failure)?;
        Ok(request.as_map().cloned().unwrap_or_default())
    }
}

/// Loads the oldest of these requests, as many as a list may have. Returns true if these are not all.
pub(crate) fn oldest(
    mut heads: Vec<RequestHead>,
    cells: &dyn CellSource,
) -> Result<(Vec<Value>, bool), Failure> {
    heads.sort_by_key(|head| head.created);
    let mut requests = Vec::new();
    let mut bytes = 0;
    for head in &heads {
        let request = Value::from(head.load(cells)?);
        bytes += request.memory_bytes(REQUEST_LIST_BYTES_MAX);
        if bytes > REQUEST_LIST_BYTES_MAX && !requests.is_empty() {
            return Ok((requests, true));
        }
        requests.push(request);
    }
    Ok((requests, false))
}

/// The request with one member replaced.
pub(crate) fn set(request: &Map, name: &str, value: Value) -> Result<Map, Failure> {
    request.insert(name.into(), value, &NoCells).map_err(load_failure)
}

/// The request with its answer.
pub(crate) fn answered(request: &Map, answer: Value, now: i64) -> Result<Map, Failure> {
    let request = set(request, "status", ANSWERED.into())?;
    let request = set(&request, "answered", now.into())?;
    set(&request, "answer", answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::value;

    #[test]
    fn an_answer_fits_the_options_and_the_schema() {
        let request = value(r#"{"options":["yes","no",3],"schema":{"type":"string"}}"#);
        let request = request.as_map().unwrap();
        assert!(check_answer(request, &"yes".into()).is_ok());
        assert_eq!(check_answer(request, &"maybe".into()).unwrap_err().code, "invalid_input");
        let error = check_answer(request, &3.into()).unwrap_err();
        assert!(error.error.contains("does not fit"), "{}", error.error);
        assert!(check_answer(&Map::default(), &Value::Nil).is_ok());
    }

    #[test]
    fn a_schema_that_does_not_compile_is_refused() {
        let input = value(r#"{"question":"?","schema":{"type":"nothing"}}"#);
        let fields = Fields::from_value(&input).unwrap();
        assert_eq!(asked("a~1", &fields, 0).unwrap_err().code, "invalid_input");
        let input = value(r#"{"options":["yes"]}"#);
        let fields = Fields::from_value(&input).unwrap();
        assert!(asked("a~1", &fields, 0).is_err(), "there is no question");
    }
}
