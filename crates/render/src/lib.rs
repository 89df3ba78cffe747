//! Sets formulas and documents: bytes in, bytes and facts out.
//!
//! The crate reads no file, no clock, no environment variable and no socket: a request is JSON with the images
//! that it names, the fonts are part of the binary, and equal requests give equal bytes. It knows nothing of jobs
//! and runs in the sandbox only.
//!
//! Modules, in reading order: [`error`], [`limits`], [`latex`] (formulas as markup of Typst), `world` (what Typst
//! can see), `typeset` (running it), `formula` (images of formulas), `images` (what figures are), `document` (the
//! blocks of a document), `markdown` (text with markup), `paged` (documents as PDF), `html` (documents as HTML), `thumbnail`.

mod document;
pub mod error;
mod formula;
mod html;
mod images;
pub mod latex;
pub mod limits;
mod markdown;
mod paged;
mod thumbnail;
mod typeset;
mod world;

use serde_json::Value;

pub use error::RenderError;
pub use world::fingerprint;

/// A file that was made.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// Its name.
    pub name: String,
    /// Its content.
    pub bytes: Vec<u8>,
    /// What is known about it, such as its size: an object.
    pub facts: Value,
}

/// What was made of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    /// The files.
    pub outputs: Vec<Output>,
}

/// Where the images of a request come from: the content of a digest, as 64 hex digits.
pub type Images<'a> = &'a dyn Fn(&str) -> Option<Vec<u8>>;

/// Makes the one thread that calls this the one that lays out: a process that forks may have no other.
pub fn use_one_thread() {
    // Fails if it was called before, which is as good.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global();
}

/// Carries out a request.
pub fn render(request: &Value, images: Images<'_>) -> Result<Rendered, RenderError> {
    match request["task"].as_str() {
        Some("render") => formula::render(request),
        Some("export") => export(request, images),
        Some("thumbnail") => thumbnail::render(request, images),
        _ => Err(RenderError::request("`task` must be render, export or thumbnail")),
    }
}

fn export(request: &Value, images: Images<'_>) -> Result<Rendered, RenderError> {
    let document = document::Document::read(&request["document"])?;
    let view = match request["view_mode"].as_str() {
        Some("slide") => paged::View::Slide,
        _ => paged::View::Document,
    };
    let has_notes = request["include_speaker_notes"].as_bool().unwrap_or(false);
    match request["format"].as_str() {
        Some("html") => html::html(&document, view, has_notes, images),
        _ => paged::pdf(&document, view, has_notes, images),
    }
}

/// Carries out small requests, so that what they need is in memory.
pub fn warm() {
    use_one_thread();
    let request = serde_json::json!({
        "task": "render", "formats": ["svg", "png"],
        "object": {"format": "latex", "source": WARM},
    });
    let _ = render(&request, &|_| None);
    let request = serde_json::json!({
        "task": "export", "format": "pdf", "document": {"title": "Title", "blocks": [
            {"type": "heading", "level": 1, "text": "One"}, {"type": "heading", "level": 2, "text": "Two"},
            {"type": "text", "text": "Some *text* with **markup**, `code` and $x^2$.\n\n- one\n- two"},
            {"type": "equation", "latex": "x = 1", "label": "e"},
            {"type": "code", "language": "python", "text": "def f(x):\n    return x + 1"},
            {"type": "table", "header": ["a"], "rows": [["b"]], "caption": "A table"},
        ]},
    });
    let _ = render(&request, &|_| None);
}

/// Carries out a small request that [`warm`] has not: what it writes to is not shared with another process
/// any more.
pub fn rehearse() {
    let request = serde_json::json!({
        "task": "render", "formats": ["svg"],
        "object": {"format": "latex", "source": REHEARSED},
    });
    let _ = render(&request, &|_| None);
}

const REHEARSED: &str =
    r"\int_a^b \frac{t^3 - 2}{\sqrt{4 + y_0}} \, dt = \sum_{k=0}^{7} \left( \alpha_k \right)";

const WARM: &str = r"\int_0^1 \frac{\sqrt{x^2+1}}{\sum_{i=1}^n a_i} \left(\begin{pmatrix} a & b \\ c & d \end{pmatrix}\right) \text{if } \hat{x} \in \mathbb{R}, \sin \alpha \leq \begin{cases} 1 & y \\ 2 & z \end{cases}";
