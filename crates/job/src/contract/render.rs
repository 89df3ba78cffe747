//! What is rendered: objects, documents and thumbnails, checked before a job exists.
//!
//! A payload is read into a request for the renderer of an executor. Whatever the payload shows to be wrong is an
//! error with a JSON pointer; only the sources themselves, such as formulas, are left to the renderer.

mod document;

use catena_value::{Map, Value, Vector, json};

use super::envelope::{JobType, Limits, Plan};
use super::error::ContractError;
use super::read::{is_digest, items, object, present, text};
use crate::limits::{CONTRACT_SOURCE_BYTES_MAX, THUMBNAIL_SIDE_MAX, THUMBNAIL_SIDE_MIN};

/// What an executor renders.
#[derive(Debug, Clone, PartialEq)]
pub struct RenderPlan {
    /// The request of the renderer, as the text of a JSON object.
    pub request: String,
    /// The digests of the images that it reads, each once.
    pub images: Vec<String>,
    /// What it may use.
    pub limits: Limits,
}

impl RenderPlan {
    /// Reads a payload.
    pub fn read(payload: &Value) -> Result<RenderPlan, ContractError> {
        let root = payload.as_map().ok_or_else(|| at("", "must be an object"))?;
        let kind = text(root, "job_type").unwrap_or_default();
        let kind = JobType::ALL.into_iter().find(|known| known.as_str() == kind);
        let kind = kind.ok_or_else(|| at("/job_type", "is not a job type"))?;
        let limits = present(root, "limits").and_then(Value::as_map).cloned().unwrap_or_default();
        let (request, images) = read_request(kind, root)?;
        Ok(RenderPlan {
            request: json::to_string(&request).unwrap_or_default(),
            images,
            limits: Limits::read(&limits, &Plan::UNLIMITED)?,
        })
    }
}

/// Checks the inputs of a job that renders.
pub(super) fn check(job_type: JobType, payload: &Map) -> Result<(), ContractError> {
    read_request(job_type, payload).map(drop)
}

/// An error at a JSON pointer. The field is the same place as other errors name it.
pub(super) fn at(pointer: &str, message: impl std::fmt::Display) -> ContractError {
    let field = pointer.trim_start_matches('/').replace('/', ".");
    let field = if field.is_empty() { "the payload".to_owned() } else { field };
    ContractError::at(&field, message).with("pointer", pointer)
}

/// An error about a value that is known and not supported.
fn unsupported(code: &str, pointer: &str, message: String) -> ContractError {
    let field = pointer.trim_start_matches('/').replace('/', ".");
    ContractError::invalid(code, message).with("field", field.as_str()).with("pointer", pointer)
}

type Request = (Value, Vec<String>);

fn read_request(job_type: JobType, payload: &Map) -> Result<Request, ContractError> {
    let inputs = map_at(payload, "inputs", "/inputs")?;
    match job_type {
        JobType::ObjectExecute => Err(at("/job_type", "is not one that renders")),
        JobType::ObjectRender => read_render(&inputs, payload),
        JobType::DocumentExport => read_export(&inputs, payload),
        JobType::ThumbnailGenerate => read_thumbnail(&inputs, payload),
    }
}

fn map_at(map: &Map, name: &str, pointer: &str) -> Result<Map, ContractError> {
    let found = map.field(name).and_then(Value::as_map).cloned();
    found.ok_or_else(|| at(pointer, "must be an object"))
}

/// The formats that are asked for: some of those that are known, or the default.
fn read_formats(
    payload: &Map,
    known: &[&str],
    default: &[&str],
) -> Result<Vec<String>, ContractError> {
    let spec = present(payload, "output_spec").and_then(Value::as_map).cloned().unwrap_or_default();
    let Some(given) = present(&spec, "formats") else {
        return Ok(default.iter().map(|&format| format.to_owned()).collect());
    };
    let pointer = "/output_spec/formats";
    let list = items(given).filter(|list| !list.is_empty() && list.len() <= 16);
    let list = list.ok_or_else(|| at(pointer, "must be an array of formats"))?;
    let mut formats = Vec::new();
    for (index, format) in list.iter().enumerate() {
        let format = format.to_text().unwrap_or_default().into_owned();
        if !known.contains(&format.as_str()) {
            let text = format!(
                "the format {format:?} is not supported; {} can be made",
                known.join(" and ")
            );
            return Err(unsupported("UNSUPPORTED_FORMAT", &format!("{pointer}/{index}"), text));
        }
        if !formats.contains(&format) {
            formats.push(format);
        }
    }
    Ok(formats)
}

fn read_render(inputs: &Map, payload: &Map) -> Result<Request, ContractError> {
    let target = map_at(inputs, "object", "/inputs/object")?;
    let formats = read_formats(payload, &["svg", "png"], &["svg"])?;
    let spec = present(payload, "output_spec").and_then(Value::as_map).cloned().unwrap_or_default();
    let request = object([
        ("task", "render".into()),
        ("object", read_object(&target, "/inputs/object")?),
        (
            "formats",
            formats.iter().map(|format| Value::from(format.as_str())).collect::<Vector>().into(),
        ),
        ("options", read_options(&spec)?),
    ]);
    Ok((request, Vec::new()))
}

/// An object whose content is a source.
fn read_object(target: &Map, pointer: &str) -> Result<Value, ContractError> {
    let content = map_at(target, "content", &format!("{pointer}/content"))?;
    let at_content = |name: &str| format!("{pointer}/content/{name}");
    let format = text(&content, "format").unwrap_or_default();
    if !matches!(format.as_str(), "latex" | "typst") {
        let text =
            format!("content of the format {format:?} cannot be rendered; latex and typst can");
        return Err(unsupported("UNSUPPORTED_FORMAT", &at_content("format"), text));
    }
    let source = content.field("value").and_then(Value::to_text);
    let source = source.ok_or_else(|| at(&at_content("value"), "must be the source text"))?;
    if source.len() > CONTRACT_SOURCE_BYTES_MAX {
        return Err(at(
            &at_content("value"),
            format!("has more than {CONTRACT_SOURCE_BYTES_MAX} bytes"),
        ));
    }
    let display = match present(&content, "display") {
        None => true,
        Some(value) => {
            value.as_bool().ok_or_else(|| at(&at_content("display"), "must be true or false"))?
        }
    };
    Ok(object([
        ("format", format.as_str().into()),
        ("source", source.as_ref().into()),
        ("display", display.into()),
    ]))
}

/// The options of an image. Each is checked; one that is not known is refused.
fn read_options(spec: &Map) -> Result<Value, ContractError> {
    let Some(given) = present(spec, "options") else { return Ok(Map::new().into()) };
    let pointer = "/output_spec/options";
    let options = given.as_map().ok_or_else(|| at(pointer, "must be an object"))?;
    for (name, value) in options.fields() {
        let name = name.to_text().unwrap_or_default();
        let place = format!("{pointer}/{name}");
        match name.as_ref() {
            "scale" => check_number(value, 1.0, 8.0, &place)?,
            "font_size" => check_number(value, 4.0, 144.0, &place)?,
            "color" => check_color(value, &place, false)?,
            "background" => check_color(value, &place, true)?,
            _ => {
                let text = format!(
                    "there is no option {name:?}; scale, color, background and font_size exist"
                );
                return Err(unsupported("UNSUPPORTED_OPTION", &place, text));
            }
        }
    }
    Ok(given.clone())
}

fn check_number(value: &Value, least: f64, most: f64, pointer: &str) -> Result<(), ContractError> {
    let number = match value {
        Value::Double(double) => Some(double.get()),
        other => other.as_i64().map(|number| number as f64),
    };
    match number {
        Some(number) if (least..=most).contains(&number) => Ok(()),
        _ => Err(at(pointer, format!("must be a number from {least} to {most}"))),
    }
}

fn check_color(
    value: &Value,
    pointer: &str,
    may_be_transparent: bool,
) -> Result<(), ContractError> {
    let color = value.to_text().unwrap_or_default();
    let digits = color.strip_prefix('#').unwrap_or_default();
    let is_hex = matches!(digits.len(), 3 | 6 | 8) && digits.chars().all(|c| c.is_ascii_hexdigit());
    if is_hex || (may_be_transparent && color == "transparent") {
        return Ok(());
    }
    let other = if may_be_transparent { ", or `transparent`" } else { "" };
    Err(at(pointer, format!("must be `#` and 3, 6 or 8 hex digits{other}")))
}

fn read_flag(map: &Map, name: &str, pointer: &str) -> Result<bool, ContractError> {
    match present(map, name) {
        None => Ok(false),
        Some(value) => value.as_bool().ok_or_else(|| at(pointer, "must be true or false")),
    }
}

/// A word of a closed list.
fn read_word(
    map: &Map,
    name: &str,
    pointer: &str,
    known: &[&'static str],
    code: &str,
) -> Result<&'static str, ContractError> {
    let Some(given) = present(map, name) else {
        return Ok(known.first().copied().unwrap_or_default());
    };
    let given = given.to_text().ok_or_else(|| at(pointer, "must be a string"))?;
    known.iter().find(|word| **word == given).copied().ok_or_else(|| {
        unsupported(
            code,
            pointer,
            format!("{given:?} is not supported; {} are", known.join(" and ")),
        )
    })
}

fn read_export(inputs: &Map, payload: &Map) -> Result<Request, ContractError> {
    let format = read_word(
        inputs,
        "export_format",
        "/inputs/export_format",
        &["pdf", "html"],
        "UNSUPPORTED_FORMAT",
    )?;
    let view = read_word(
        inputs,
        "view_mode",
        "/inputs/view_mode",
        &["document", "slide"],
        "UNSUPPORTED_VIEW_MODE",
    )?;
    let formats = read_formats(payload, &["pdf", "html"], &[format])?;
    if formats != [format] {
        let text =
            format!("`output_spec.formats` must be [{format:?}], as `inputs.export_format` says");
        return Err(unsupported("UNSUPPORTED_FORMAT", "/output_spec/formats", text));
    }
    let (document, images) = document::read(inputs, "/inputs/document")?;
    let notes = read_flag(inputs, "include_speaker_notes", "/inputs/include_speaker_notes")?;
    let request = object([
        ("task", "export".into()),
        ("document", document),
        ("format", format.into()),
        ("view_mode", view.into()),
        ("include_speaker_notes", notes.into()),
    ]);
    Ok((request, images))
}

fn read_thumbnail(inputs: &Map, payload: &Map) -> Result<Request, ContractError> {
    read_formats(payload, &["png"], &["png"])?;
    let side = |name: &str| {
        let pointer = format!("/inputs/{name}");
        let number = inputs.field(name).and_then(Value::as_i64);
        let is_allowed = |number: &i64| (THUMBNAIL_SIDE_MIN..=THUMBNAIL_SIDE_MAX).contains(number);
        number.filter(is_allowed).ok_or_else(|| {
            at(
                &pointer,
                format!("must be a whole number from {THUMBNAIL_SIDE_MIN} to {THUMBNAIL_SIDE_MAX}"),
            )
        })
    };
    let (width, height) = (side("width")?, side("height")?);
    let fit = read_word(inputs, "fit", "/inputs/fit", &["contain", "cover"], "UNSUPPORTED_OPTION")?;
    let mut members = vec![
        ("task", Value::from("thumbnail")),
        ("width", width.into()),
        ("height", height.into()),
        ("fit", fit.into()),
    ];
    let given: Vec<&str> = ["digest", "document", "object"]
        .into_iter()
        .filter(|name| present(inputs, name).is_some())
        .collect();
    let images = match given.as_slice() {
        ["digest"] => {
            let digest = text(inputs, "digest").filter(|digest| is_digest(digest));
            let digest = digest.ok_or_else(|| at("/inputs/digest", DIGEST))?;
            members.push(("digest", digest.as_str().into()));
            vec![digest]
        }
        ["document"] => {
            let (document, images) = document::read(inputs, "/inputs/document")?;
            members.push(("document", document));
            images
        }
        ["object"] => {
            let target = map_at(inputs, "object", "/inputs/object")?;
            members.push(("object", read_object(&target, "/inputs/object")?));
            Vec::new()
        }
        _ => {
            return Err(at(
                "/inputs",
                "must have exactly one of `digest`, `document` and `object`",
            ));
        }
    };
    Ok((object(members), images))
}

/// What a digest must be.
const DIGEST: &str = "must be `sha256:` and 64 lower-case hex digits";

/// Returns the payload of an operation that renders without a contract job.
///
/// `exec:render` has `{latex | typst, display?, formats?, options?}`, `exec:export` has `{document, format?, view_mode?,
/// include_speaker_notes?}`, and `exec:thumbnail` has the inputs of the contract. All have `limits?`.
pub fn payload_of_rendering(job_type: JobType, input: &Map) -> Result<Map, ContractError> {
    let member = |name: &str| present(input, name).cloned();
    let mut spec = Vec::new();
    let inputs = match job_type {
        JobType::ObjectRender => {
            let sources =
                ["latex", "typst"].into_iter().filter_map(|format| Some((format, member(format)?)));
            let sources: Vec<_> = sources.collect();
            let [(format, source)] = sources.as_slice() else {
                return Err(at("", "must have one of `latex` and `typst`"));
            };
            let mut content = vec![("format", Value::from(*format)), ("value", source.clone())];
            content.extend(member("display").map(|display| ("display", display)));
            spec.extend(member("formats").map(|formats| ("formats", formats)));
            spec.extend(member("options").map(|options| ("options", options)));
            vec![("object", object([("type", "equation".into()), ("content", object(content))]))]
        }
        JobType::DocumentExport => {
            let mut inputs = Vec::new();
            for (from, to) in [
                ("document", "document"),
                ("format", "export_format"),
                ("view_mode", "view_mode"),
                ("include_speaker_notes", "include_speaker_notes"),
            ] {
                inputs.extend(member(from).map(|value| (to, value)));
            }
            inputs
        }
        _ => ["digest", "document", "object", "width", "height", "fit"]
            .into_iter()
            .filter_map(|name| Some((name, member(name)?)))
            .collect(),
    };
    let members = [
        ("schema_version", Value::from(super::SCHEMA_VERSION)),
        ("job_type", job_type.as_str().into()),
        ("limits", member("limits").unwrap_or_else(|| Map::new().into())),
        (
            "environment",
            object([("language", "render".into()), ("network_access", "disabled".into())]),
        ),
        ("inputs", object(inputs)),
        ("output_spec", object(spec)),
    ];
    let members: Map = members.into_iter().collect();
    check(job_type, &members)?;
    Ok(members)
}

#[cfg(test)]
mod tests;
