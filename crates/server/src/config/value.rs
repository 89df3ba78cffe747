//! Settings whose values are keywords.

use super::parse::Parse;

/// A switch whose default depends on other settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
    /// Decided from other settings.
    Auto,
}

impl Switch {
    /// Whether it is on. `automatic` is the value of `Auto`.
    pub fn or_auto(self, automatic: bool) -> bool {
        match self {
            Switch::On => true,
            Switch::Off => false,
            Switch::Auto => automatic,
        }
    }
}

impl Parse for Switch {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "on" | "true" => Ok(Switch::On),
            "off" | "false" => Ok(Switch::Off),
            "auto" => Ok(Switch::Auto),
            _ => Err("expected on, off or auto".to_owned()),
        }
    }
}

/// Who may use the venue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessMode {
    /// Everyone, also without a token.
    Anyone,
    /// Everyone who has a key or a token.
    Keys,
    /// The identities on the access list.
    Listed,
}

impl AccessMode {
    /// The keyword in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            AccessMode::Anyone => "anyone",
            AccessMode::Keys => "keys",
            AccessMode::Listed => "listed",
        }
    }
}

/// An access mode; `None` if it is decided from other settings.
impl Parse for Option<AccessMode> {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "anyone" => Ok(Some(AccessMode::Anyone)),
            "keys" => Ok(Some(AccessMode::Keys)),
            "listed" => Ok(Some(AccessMode::Listed)),
            "auto" => Ok(None),
            _ => Err("expected anyone, keys, listed or auto".to_owned()),
        }
    }
}

/// Whether tokens that name no audience are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnboundTokens {
    /// They are accepted.
    Allow,
    /// They are refused.
    Refuse,
    /// Decided from other settings.
    Auto,
}

impl Parse for UnboundTokens {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "allow" => Ok(UnboundTokens::Allow),
            "refuse" => Ok(UnboundTokens::Refuse),
            "auto" => Ok(UnboundTokens::Auto),
            _ => Err("expected allow, refuse or auto".to_owned()),
        }
    }
}

/// Which tool calls of MCP clients are recorded as jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum McpRecord {
    /// All of them.
    All,
    /// Those of operations that may change something.
    Changes,
}

impl Parse for McpRecord {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(McpRecord::All),
            "changes" => Ok(McpRecord::Changes),
            _ => Err("expected all or changes".to_owned()),
        }
    }
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Readable text.
    Text,
    /// JSON, one object per line.
    Json,
}

impl Parse for LogFormat {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(LogFormat::Text),
            "json" => Ok(LogFormat::Json),
            _ => Err("expected text or json".to_owned()),
        }
    }
}

/// A limit of stored bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaSetting {
    /// There is no limit.
    Off,
    /// Decided from other settings.
    Auto,
    /// The number of bytes.
    Bytes(u64),
}

impl Parse for QuotaSetting {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(QuotaSetting::Off),
            "auto" => Ok(QuotaSetting::Auto),
            size => match super::Bytes::parse(size) {
                Ok(bytes) => Ok(QuotaSetting::Bytes(*bytes as u64)),
                Err(expected) => Err(format!("{expected}, off or auto")),
            },
        }
    }
}

/// A rate limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RateSetting {
    /// There is no limit.
    Off,
    /// Decided from other settings.
    Auto,
    /// The number of requests per second.
    PerSecond(f64),
}

impl Parse for RateSetting {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(RateSetting::Off),
            "auto" => Ok(RateSetting::Auto),
            number => match number.parse::<f64>() {
                Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(RateSetting::PerSecond(rate)),
                _ => Err("expected a number above 0, off or auto".to_owned()),
            },
        }
    }
}
