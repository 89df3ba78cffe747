//! Support code of the black-box tests; the tests themselves are the test targets.
//!
//! Modules, in reading order: [`http`] (a client that exposes raw bytes), [`events`] (event streams),
//! [`chain`] (a history, checked from its JSON alone), [`site`] (a venue in this process and its
//! client), [`mcp`] (an MCP client), [`process`] (a venue in a separate process, which can be killed),
//! [`target`] (a server that counts the requests it receives), [`service`] (a server whose answers a
//! test decides), [`model`] (a language model whose answers a test decides), [`log`] (what this process logs), [`random`] (seeded
//! decisions), [`crash`] (kill, restart, compare).
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
#[path = "support/log.rs"]
pub mod log;
#[path = "support/mcp.rs"]
pub mod mcp;
#[path = "support/model.rs"]
pub mod model;
#[path = "support/process.rs"]
pub mod process;
#[path = "support/random.rs"]
pub mod random;
#[path = "support/service.rs"]
pub mod service;
#[path = "support/site.rs"]
pub mod site;
#[path = "support/target.rs"]
pub mod target;

/// The longest time that a test waits for something that must happen. Unoptimised programs on a busy machine are slow.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// How long a test observes that something does not happen; there is no event to wait for.
pub const QUIET_PERIOD: Duration = Duration::from_millis(300);
