//! Every bound of this crate, with its reason.

/// Bytes of a formula or of other source text.
pub const SOURCE_BYTES_MAX: usize = 256 << 10;

/// Macros that the expansion of one formula may replace: `\def\a{\a\a}` has no end.
pub const EXPANSIONS_MAX: usize = 10_000;

/// Tokens that macros may produce for one formula.
pub const EXPANDED_TOKENS_MAX: usize = 200_000;

/// Macros that one source may define.
pub const MACROS_MAX: usize = 1_000;

/// Groups within groups. Each one is a level of the layout, too, which recurses.
pub const NESTING_MAX: usize = 40;

/// Blocks of a document.
pub const BLOCKS_MAX: usize = 10_000;

/// Rows of a table: each one is laid out with all others.
pub const ROWS_MAX: usize = 5_000;

/// Columns of a table: more cannot be read on a page.
pub const COLUMNS_MAX: usize = 50;

/// Cells of all tables of a document.
pub const CELLS_MAX: usize = 50_000;

/// Bytes of text of a document, all blocks together.
pub const DOCUMENT_BYTES_MAX: usize = 4 << 20;

/// Levels of lists and quotes within each other.
pub const LIST_DEPTH_MAX: usize = 12;

/// Pages of a document, and slides.
pub const PAGES_MAX: usize = 2_000;

/// Pixels of one side of an image that is read.
pub const IMAGE_SIDE_MAX: u32 = 20_000;

/// Bytes of an image when it is unpacked, at four for each pixel.
pub const IMAGE_BYTES_MAX: u64 = 256 << 20;

/// Pixels of one side of an image that is written.
pub const OUTPUT_SIDE_MAX: u32 = 16_384;

/// Pixels of an image that is written.
pub const OUTPUT_PIXELS_MAX: u64 = 64 << 20;
