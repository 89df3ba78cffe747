//! A document: blocks that were read from a request, within bounds.

use serde_json::Value;

use crate::error::RenderError;
use crate::limits::{BLOCKS_MAX, CELLS_MAX, COLUMNS_MAX, DOCUMENT_BYTES_MAX, ROWS_MAX};

/// A document.
#[derive(Debug, Clone, Default)]
pub(crate) struct Document {
    pub(crate) title: Option<String>,
    pub(crate) authors: Vec<String>,
    pub(crate) lang: String,
    pub(crate) blocks: Vec<Block>,
}

/// A block.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    /// Its ID, or its position.
    pub(crate) id: String,
    /// The name by which text refers to it.
    pub(crate) label: Option<String>,
    pub(crate) kind: Kind,
}

/// What a block is.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Heading { level: u8, text: String },
    Text(String),
    Equation(String),
    Code { language: Option<String>, text: String, output: Option<String> },
    Figure { digest: String, caption: Option<String>, alt: Option<String> },
    Table { header: Vec<String>, rows: Vec<Vec<String>>, caption: Option<String> },
    List { is_ordered: bool, items: Vec<String> },
    Quote { text: String, attribution: Option<String> },
    Divider,
    PageBreak,
    Notes(String),
}

impl Document {
    /// Reads a document whose form was checked before.
    pub(crate) fn read(value: &Value) -> Result<Document, RenderError> {
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let list = value["blocks"].as_array();
        let list = list.ok_or_else(|| RenderError::request("`blocks` must be an array"))?;
        if list.len() > BLOCKS_MAX {
            return Err(RenderError::limit(format!(
                "the document has more than {BLOCKS_MAX} blocks"
            )));
        }
        let authors = value["authors"].as_array().into_iter().flatten();
        let mut document = Document {
            title: text("title"),
            authors: authors.filter_map(|name| Some(name.as_str()?.to_owned())).collect(),
            lang: text("lang").unwrap_or_else(|| "en".to_owned()),
            blocks: Vec::with_capacity(list.len()),
        };
        let mut budget = Budget { bytes: 0, cells: 0 };
        for (index, block) in list.iter().enumerate() {
            let id = block["id"].as_str().map_or_else(|| index.to_string(), str::to_owned);
            let kind = read_kind(block, &mut budget).map_err(|error| error.in_block(&id))?;
            let label = block["label"].as_str().map(str::to_owned);
            document.blocks.push(Block { id, label, kind });
        }
        Ok(document)
    }

    /// The digests of its figures.
    pub(crate) fn figures(&self) -> impl Iterator<Item = (&Block, &str)> {
        self.blocks.iter().filter_map(|block| match &block.kind {
            Kind::Figure { digest, .. } => Some((block, digest.as_str())),
            _ => None,
        })
    }

    /// How many headings it has.
    pub(crate) fn headings(&self) -> usize {
        self.blocks.iter().filter(|block| matches!(block.kind, Kind::Heading { .. })).count()
    }
}

/// What all blocks together have used.
struct Budget {
    bytes: usize,
    cells: usize,
}

impl Budget {
    fn take(&mut self, text: &str) -> Result<String, RenderError> {
        self.bytes += text.len();
        if self.bytes > DOCUMENT_BYTES_MAX {
            return Err(RenderError::limit(format!(
                "the document has more than {DOCUMENT_BYTES_MAX} bytes of text"
            )));
        }
        Ok(text.to_owned())
    }
}

fn read_kind(block: &Value, budget: &mut Budget) -> Result<Kind, RenderError> {
    let required = |name: &str, budget: &mut Budget| {
        let text = block[name].as_str();
        budget.take(text.ok_or_else(|| RenderError::request(format!("`{name}` must be a text")))?)
    };
    let optional = |name: &str, budget: &mut Budget| match block[name].as_str() {
        None => Ok(None),
        Some(text) => budget.take(text).map(Some),
    };
    Ok(match block["type"].as_str().unwrap_or_default() {
        "heading" => {
            let level = block["level"].as_u64().unwrap_or(1).clamp(1, 6);
            Kind::Heading {
                level: u8::try_from(level).unwrap_or(1),
                text: required("text", budget)?,
            }
        }
        "text" => Kind::Text(required("text", budget)?),
        "equation" => Kind::Equation(required("latex", budget)?),
        "code" => Kind::Code {
            language: optional("language", budget)?,
            text: required("text", budget)?,
            output: optional("output", budget)?,
        },
        "figure" => Kind::Figure {
            digest: required("digest", budget)?.trim_start_matches("sha256:").to_owned(),
            caption: optional("caption", budget)?,
            alt: optional("alt", budget)?,
        },
        "table" => read_table(block, budget)?,
        "list" => {
            let items = block["items"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let items = items.map(|item| budget.take(item)).collect::<Result<_, _>>()?;
            Kind::List { is_ordered: block["ordered"].as_bool().unwrap_or(false), items }
        }
        "quote" => Kind::Quote {
            text: required("text", budget)?,
            attribution: optional("attribution", budget)?,
        },
        "divider" => Kind::Divider,
        "page_break" => Kind::PageBreak,
        "notes" => Kind::Notes(required("text", budget)?),
        other => return Err(RenderError::request(format!("there is no block type {other:?}"))),
    })
}

fn read_table(block: &Value, budget: &mut Budget) -> Result<Kind, RenderError> {
    let mut row = |cells: &Value| {
        let cells = cells.as_array().map(Vec::as_slice).unwrap_or_default();
        budget.cells += cells.len();
        if cells.len() > COLUMNS_MAX || budget.cells > CELLS_MAX {
            let text = format!(
                "a table may have {COLUMNS_MAX} columns, and all tables together {CELLS_MAX} cells"
            );
            return Err(RenderError::limit(text));
        }
        cells.iter().map(|cell| budget.take(&cell_text(cell))).collect::<Result<Vec<_>, _>>()
    };
    let header = row(&block["header"])?;
    let rows = block["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    if rows.len() > ROWS_MAX {
        let text = format!("the table has {} rows; at most {ROWS_MAX} are allowed", rows.len());
        return Err(RenderError::limit(text));
    }
    let rows = rows.iter().map(row).collect::<Result<_, _>>()?;
    let caption = block["caption"].as_str().map(str::to_owned);
    Ok(Kind::Table { header, rows, caption })
}

fn cell_text(cell: &Value) -> String {
    match cell {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
