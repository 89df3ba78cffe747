//! Values of settings that are words.

use super::parse::Parse;

/// On, off, or by circumstances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
    /// As makes sense.
    Auto,
}

impl Switch {
    /// Whether it is on, given what makes sense.
    pub fn or_auto(self, sensible: bool) -> bool {
        match self {
            Switch::On => true,
            Switch::Off => false,
            Switch::Auto => sensible,
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

/// The form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
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

/// How often something may happen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rating {
    /// As often as one likes.
    Off,
    /// As makes sense.
    Auto,
    /// So often.
    PerSecond(f64),
}

impl Parse for Rating {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Rating::Off),
            "auto" => Ok(Rating::Auto),
            number => match number.parse::<f64>() {
                Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(Rating::PerSecond(rate)),
                _ => Err("expected a number above 0, off or auto".to_owned()),
            },
        }
    }
}
