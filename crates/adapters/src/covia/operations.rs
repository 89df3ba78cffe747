//! The operations of the adapter: their names, schemas and marks.

use catena_engine::ExecutionMode;

use crate::definition::{Definition, Mark};

const READ: &[Mark] = &[Mark::Idempotent, Mark::ReadOnly];
const OVERWRITE: &[Mark] = &[Mark::Idempotent];

const WRITTEN: Option<&str> = Some(
    r#"{"type":"object","required":["existed"],"properties":{
        "existed":{"type":"boolean","description":"Whether there was a value before"},
        "pathCreated":{"type":"boolean","description":"True if objects along the path were created"}}}"#,
);

const COUNTED: Option<&str> = Some(
    r#"{"type":"object","required":["exists"],"properties":{
        "exists":{"type":"boolean","description":"Whether there is a container at the path"},
        "count":{"type":"integer"},
        "groups":{"type":"object","additionalProperties":{"type":"object","properties":{"count":{"type":"integer"}}}},
        "id":{"type":"string","description":"The Value ID of the container"}}}"#,
);

/// The operations.
pub(super) const OPERATIONS: &[Definition] = &[
    Definition {
        name: "read",
        title: "Read a value",
        description: "Returns the value at a path. If its encoding is longer than `maxSize`, the value is \
                      null and `truncated` is true.",
        mode: ExecutionMode::Roots,
        marks: READ,
        input: Some(
            r#"{"type":"object","required":["path"],"properties":{
                "path":{"type":"string","description":"Such as `w/records/1/name`"},
                "maxSize":{"type":["integer","null"],"minimum":0,"maximum":16777216,"description":"Bytes; 1,000,000 by default"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["exists","type"],"properties":{
                "exists":{"type":"boolean","description":"A stored null exists"},
                "type":{"type":"string"},
                "value":{},
                "id":{"type":"string","description":"The Value ID of the value"},
                "valueBytes":{"type":"integer","description":"The length of its encoding"},
                "truncated":{"type":"boolean"}}}"#,
        ),
    },
    Definition {
        name: "write",
        title: "Write a value",
        description: "Stores a value at a path below `w` or `o`. Objects that are missing along the path are \
                      created; the position after the last of an array appends.",
        mode: ExecutionMode::Roots,
        marks: OVERWRITE,
        input: Some(
            r#"{"type":"object","required":["path","value"],"properties":{
                "path":{"type":"string"},"value":{"description":"Any value of at most 16 MiB"}}}"#,
        ),
        output: WRITTEN,
    },
    Definition {
        name: "delete",
        title: "Delete a value",
        description: "Removes the value at a path below `w` or `o`. An element of an array becomes null, so that \
                      the others keep their positions.",
        mode: ExecutionMode::Roots,
        marks: OVERWRITE,
        input: Some(
            r#"{"type":"object","required":["path"],"properties":{"path":{"type":"string"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["deleted"],"properties":{
                "deleted":{"type":"boolean","description":"Whether there was a value"}}}"#,
        ),
    },
    Definition {
        name: "append",
        title: "Append to an array",
        description: "Appends a value to the array at a path below `w` or `o`, which is created if it is missing.",
        mode: ExecutionMode::Roots,
        marks: &[],
        input: Some(
            r#"{"type":"object","required":["path","value"],"properties":{
                "path":{"type":"string"},"value":{"description":"Any value of at most 16 MiB"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["existed","index","newSize"],"properties":{
                "existed":{"type":"boolean","description":"Whether there was an array before"},
                "index":{"type":"integer","description":"The position of the new element"},
                "newSize":{"type":"integer"},
                "pathCreated":{"type":"boolean"}}}"#,
        ),
    },
    Definition {
        name: "copy",
        title: "Copy a value",
        description: "Stores the value at one path at another one, which is below `w` or `o`. The copy shares \
                      storage with the original.",
        mode: ExecutionMode::Roots,
        marks: OVERWRITE,
        input: Some(
            r#"{"type":"object","required":["from","to"],"properties":{
                "from":{"type":"string","description":"Any path that can be read"},
                "to":{"type":"string"}}}"#,
        ),
        output: WRITTEN,
    },
    Definition {
        name: "list",
        title: "List keys",
        description: "Lists the keys of the object at a path, or describes another value. Without a path it lists \
                      the namespaces.",
        mode: ExecutionMode::Roots,
        marks: READ,
        input: Some(
            r#"{"type":["object","null"],"properties":{
                "path":{"type":["string","null"]},
                "offset":{"type":["integer","null"],"minimum":0},
                "limit":{"type":["integer","null"],"minimum":0,"maximum":10000,"description":"1,000 by default"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["exists","type"],"properties":{
                "exists":{"type":"boolean"},"type":{"type":"string"},
                "count":{"type":"integer","description":"The number of entries"},
                "keys":{"type":"array","items":{"type":"string"}},
                "offset":{"type":"integer"},"id":{"type":"string"}}}"#,
        ),
    },
    Definition {
        name: "slice",
        title: "Read a page of entries",
        description: "Returns entries of the array or object at a path; those of an object are `{key, value}`. A \
                      page that would have more than `maxSize` bytes ends early with `truncated`.",
        mode: ExecutionMode::Roots,
        marks: READ,
        input: Some(
            r#"{"type":"object","required":["path"],"properties":{
                "path":{"type":"string"},
                "offset":{"type":["integer","null"],"minimum":0},
                "limit":{"type":["integer","null"],"minimum":0,"maximum":10000,"description":"100 by default"},
                "maxSize":{"type":["integer","null"],"minimum":0,"maximum":16777216,"description":"Bytes; 1,000,000 by default"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["exists","type"],"properties":{
                "exists":{"type":"boolean"},"type":{"type":"string"},
                "count":{"type":"integer","description":"The number of entries"},
                "values":{"type":"array"},
                "offset":{"type":"integer"},"truncated":{"type":"boolean"},"id":{"type":"string"}}}"#,
        ),
    },
    Definition {
        name: "inspect",
        title: "Show a value as text",
        description: "Renders the values at one or several paths as JSON5 within a number of bytes.",
        mode: ExecutionMode::Roots,
        marks: READ,
        input: Some(
            r#"{"type":"object","properties":{
                "paths":{"type":["string","array","null"],"items":{"type":"string"}},
                "path":{"type":["string","null"],"description":"The same as one of `paths`"},
                "budget":{"type":["integer","null"],"minimum":1,"maximum":100000,"description":"Bytes of each text; 1,000 by default"},
                "compact":{"type":["boolean","null"],"description":"Without line breaks"}}}"#,
        ),
        output: Some(
            r#"{"type":"object","required":["result"],"properties":{
                "result":{"type":["string","object"],"description":"The text or, for an array of paths, one text per path"},
                "id":{"type":"string","description":"The Value ID, unless there are several paths"}}}"#,
        ),
    },
    Definition {
        name: "count",
        title: "Count entries",
        description: "Counts the entries of the container at a path, or those of the containers `depth` - 1 steps \
                      below it.",
        mode: ExecutionMode::Roots,
        marks: READ,
        input: Some(
            r#"{"type":"object","required":["path"],"properties":{
                "path":{"type":"string"},
                "depth":{"type":["integer","null"],"minimum":1,"maximum":16,"description":"1 by default"}}}"#,
        ),
        output: COUNTED,
    },
    Definition {
        name: "aggregate",
        title: "Count entries by group",
        description: "Counts entries as `count` does and, with `groupBy`, by the value that each has at that path.",
        mode: ExecutionMode::Roots,
        marks: READ,
        input: Some(
            r#"{"type":"object","required":["path"],"properties":{
                "path":{"type":"string"},
                "depth":{"type":["integer","null"],"minimum":1,"maximum":16,"description":"1 by default"},
                "groupBy":{"type":["string","null"],"description":"A path below each entry, such as `status`"}}}"#,
        ),
        output: COUNTED,
    },
];
