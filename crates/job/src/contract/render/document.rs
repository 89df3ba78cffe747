//! The document of an export: a list of blocks, each of a known type with members of the right kind.

use catena_value::{Map, Value};

use super::super::error::ContractError;
use super::super::read::{is_digest, items, present, text};
use super::{DIGEST, at, unsupported};
use crate::limits::{CONTRACT_ENTRIES_MAX, DOCUMENT_AUTHORS_MAX, DOCUMENT_BLOCKS_MAX};

/// The types of blocks.
const TYPES: [&str; 11] = [
    "heading",
    "text",
    "equation",
    "code",
    "figure",
    "table",
    "list",
    "quote",
    "divider",
    "page_break",
    "notes",
];

/// Reads the document below a member. Returns it as it is, and the digests of its figures.
pub(super) fn read(inputs: &Map, pointer: &str) -> Result<(Value, Vec<String>), ContractError> {
    let given = inputs.field("document").filter(|value| !value.is_nil());
    let given =
        given.ok_or_else(|| at(pointer, "is missing: an executor cannot fetch a document"))?;
    let document = given.as_map().ok_or_else(|| at(pointer, "must be an object"))?;
    for name in ["title", "lang"] {
        optional_text(document, name, pointer)?;
    }
    if let Some(lang) = text(document, "lang") {
        let is_code = matches!(lang.len(), 2 | 3) && lang.chars().all(|c| c.is_ascii_lowercase());
        if !is_code {
            return Err(at(
                &format!("{pointer}/lang"),
                "must be a language code of two or three lower-case letters",
            ));
        }
    }
    if let Some(authors) = present(document, "authors") {
        let place = format!("{pointer}/authors");
        let list = items(authors).filter(|list| list.len() <= DOCUMENT_AUTHORS_MAX);
        let list = list.ok_or_else(|| at(&place, "must be an array of names"))?;
        check_texts(&list, &place)?;
    }
    let place = format!("{pointer}/blocks");
    let blocks = present(document, "blocks").and_then(items);
    let blocks = blocks.ok_or_else(|| at(&place, "must be an array of blocks"))?;
    if blocks.len() > DOCUMENT_BLOCKS_MAX {
        return Err(at(&place, format!("has more than {DOCUMENT_BLOCKS_MAX} blocks")));
    }
    let mut images = Vec::new();
    for (index, block) in blocks.iter().enumerate() {
        let place = format!("{place}/{index}");
        let block = block.as_map().ok_or_else(|| at(&place, "must be an object"))?;
        check_block(block, &place, &mut images)?;
    }
    if images.len() > CONTRACT_ENTRIES_MAX {
        return Err(at(&place, format!("has more than {CONTRACT_ENTRIES_MAX} figures")));
    }
    Ok((given.clone(), images))
}

fn check_block(block: &Map, pointer: &str, images: &mut Vec<String>) -> Result<(), ContractError> {
    let kind = text(block, "type").unwrap_or_default();
    let place = |name: &str| format!("{pointer}/{name}");
    for name in ["id", "label", "caption", "alt", "attribution", "language"] {
        optional_text(block, name, pointer)?;
    }
    match kind.as_str() {
        "heading" => {
            required_text(block, "text", pointer)?;
            let level = block.field("level").map_or(Some(1), Value::as_i64);
            if !level.is_some_and(|level| (1..=6).contains(&level)) {
                return Err(at(&place("level"), "must be a whole number from 1 to 6"));
            }
        }
        "text" | "notes" | "quote" => required_text(block, "text", pointer)?,
        "equation" => required_text(block, "latex", pointer)?,
        "code" => {
            required_text(block, "text", pointer)?;
            optional_text(block, "output", pointer)?;
        }
        "figure" => {
            let digest = text(block, "digest").filter(|digest| is_digest(digest));
            let digest = digest.ok_or_else(|| at(&place("digest"), DIGEST))?;
            if !images.contains(&digest) {
                images.push(digest);
            }
        }
        "table" => check_table(block, pointer)?,
        "list" => {
            let list = present(block, "items").and_then(items);
            let list = list.ok_or_else(|| at(&place("items"), "must be an array of texts"))?;
            check_texts(&list, &place("items"))?;
            if present(block, "ordered").is_some_and(|value| value.as_bool().is_none()) {
                return Err(at(&place("ordered"), "must be true or false"));
            }
        }
        "divider" | "page_break" => {}
        _ => {
            let text =
                format!("there is no block type {kind:?}; the types are {}", TYPES.join(", "));
            return Err(unsupported("UNSUPPORTED_BLOCK", &place("type"), text));
        }
    }
    Ok(())
}

fn check_table(block: &Map, pointer: &str) -> Result<(), ContractError> {
    if let Some(header) = present(block, "header") {
        let place = format!("{pointer}/header");
        let cells = items(header).ok_or_else(|| at(&place, "must be an array of cells"))?;
        check_cells(&cells, &place)?;
    }
    let place = format!("{pointer}/rows");
    let rows = present(block, "rows").and_then(items);
    let rows = rows.ok_or_else(|| at(&place, "must be an array of rows"))?;
    for (index, row) in rows.iter().enumerate() {
        let place = format!("{place}/{index}");
        let cells = items(row).ok_or_else(|| at(&place, "must be an array of cells"))?;
        check_cells(&cells, &place)?;
    }
    Ok(())
}

/// Cells are texts, numbers, flags or empty.
fn check_cells(cells: &[Value], pointer: &str) -> Result<(), ContractError> {
    let is_plain = |cell: &Value| cell.as_map().is_none() && cell.as_vector().is_none();
    match cells.iter().position(|cell| !is_plain(cell)) {
        None => Ok(()),
        Some(index) => {
            Err(at(&format!("{pointer}/{index}"), "must be a text, a number, true, false or null"))
        }
    }
}

fn check_texts(list: &[Value], pointer: &str) -> Result<(), ContractError> {
    match list.iter().position(|item| item.to_text().is_none()) {
        None => Ok(()),
        Some(index) => Err(at(&format!("{pointer}/{index}"), "must be a text")),
    }
}

fn required_text(map: &Map, name: &str, pointer: &str) -> Result<(), ContractError> {
    match map.field(name).and_then(Value::to_text) {
        Some(_) => Ok(()),
        None => Err(at(&format!("{pointer}/{name}"), "is missing or not a text")),
    }
}

fn optional_text(map: &Map, name: &str, pointer: &str) -> Result<(), ContractError> {
    match present(map, name) {
        Some(value) if value.to_text().is_none() => {
            Err(at(&format!("{pointer}/{name}"), "must be a text"))
        }
        _ => Ok(()),
    }
}
