//! What black-box checks of the whole have in common; the checks are the test targets.
//!
//! Modules, in reading order: [`http`] (a client that hides nothing), [`events`] (event streams),
//! [`chain`] (a history, checked from its JSON alone), [`site`] (a venue in this process and
//! somebody who asks it), [`mcp`] (somebody who speaks MCP), [`process`] (a venue in a process of its own, which can be killed),
//! [`target`] (a server that counts what reaches it), [`crash`] (kill, restart, compare).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use std::time::Duration;

#[path = "support/chain.rs"]
pub mod chain;
#[path = "crash/crash.rs"]
pub mod crash;
#[path = "support/events.rs"]
pub mod events;
#[path = "support/http.rs"]
pub mod http;
#[path = "support/mcp.rs"]
pub mod mcp;
#[path = "support/process.rs"]
pub mod process;
#[path = "support/site.rs"]
pub mod site;
#[path = "support/target.rs"]
pub mod target;

/// Longest time that any check waits for something that must happen.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long a check looks at something that must not happen. There is no event for that.
pub const LONG_ENOUGH: Duration = Duration::from_millis(300);
