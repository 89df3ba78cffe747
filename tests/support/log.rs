//! What a venue in this process logs, for tests that run on one thread.
//!
//! One subscriber serves the whole process. A subscriber per test (`tracing::subscriber::set_default`) loses lines: a
//! thread without one that is the first to reach a log statement disables it for every other thread.

use std::cell::RefCell;
use std::io::Write;
use std::sync::{Arc, Mutex, Once};

use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;

type Lines = Arc<Mutex<Vec<u8>>>;

thread_local! {
    static CAPTURED: RefCell<Option<Lines>> = const { RefCell::new(None) };
}

/// Captures what this thread logs, at every level, until it is dropped. A thread has at most one.
pub struct Log(Lines);

impl Log {
    /// Begins to capture.
    pub fn start() -> Log {
        install();
        let lines = Lines::default();
        let previous = CAPTURED.replace(Some(Arc::clone(&lines)));
        assert!(previous.is_none(), "this thread captures its log already");
        Log(lines)
    }

    /// Returns what was logged so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        CAPTURED.set(None);
    }
}

/// Installs the subscriber of the process.
fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let is_captured =
            dynamic_filter_fn(|_, _| CAPTURED.with_borrow(|captured| captured.is_some()));
        let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(Writer::default);
        let subscriber = tracing_subscriber::registry().with(lines.with_filter(is_captured));
        tracing::subscriber::set_global_default(subscriber).unwrap();
        // Statements that other threads reached in the meantime.
        tracing::callsite::rebuild_interest_cache();
    });
}

/// Writes to the log of the current thread.
#[derive(Default)]
struct Writer;

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        CAPTURED.with_borrow(|captured| {
            if let Some(lines) = captured {
                lines.lock().unwrap().extend_from_slice(bytes);
            }
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
