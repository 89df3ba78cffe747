//! Operations for tests of the binary. They exist only in builds with debug assertions, and only if
//! the variable `CATENA_X_TEST_OPERATIONS` is set.

use std::sync::Arc;

use catena_engine::Adapter;

/// Returns the adapters with these operations.
#[cfg(not(debug_assertions))]
pub(crate) fn adapters() -> Vec<Arc<dyn Adapter>> {
    Vec::new()
}

/// Returns the adapters with these operations.
#[cfg(debug_assertions)]
pub(crate) fn adapters() -> Vec<Arc<dyn Adapter>> {
    let is_enabled = std::env::var_os("CATENA_X_TEST_OPERATIONS").is_some();
    if is_enabled { vec![Arc::new(abort::Abort)] } else { Vec::new() }
}

#[cfg(debug_assertions)]
mod abort {
    use catena_engine::{Adapter, Call, ExecutionMode, Registration, TurnFuture};
    use catena_value::json;

    /// `abort:now` aborts the process, `abort:overflow` by an overflow of the stack, and `abort:kill` as the
    /// kernel ends a process that takes too much memory.
    pub(super) struct Abort;

    impl Adapter for Abort {
        fn name(&self) -> &'static str {
            "abort"
        }

        fn description(&self) -> &'static str {
            "Aborts the process, for tests."
        }

        fn operations(&self) -> Vec<Registration> {
            let operation = |name: &'static str| {
                let text = format!(
                    r#"{{"name":"{name}","operation":{{"adapter":"abort:{name}","idempotent":true}}}}"#
                );
                let metadata = json::read(text.as_bytes()).unwrap_or_default();
                Registration { name, metadata, mode: ExecutionMode::Task }
            };
            vec![operation("now"), operation("overflow"), operation("kill")]
        }

        fn run(&self, call: Call) -> TurnFuture {
            Box::pin(async move {
                match call.operation.name() {
                    "overflow" => {
                        std::hint::black_box(overflow(1));
                    }
                    "kill" => {
                        let own = rustix::process::getpid();
                        let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
                    }
                    _ => {}
                }
                std::process::abort()
            })
        }
    }

    /// Recurses until the stack is used up.
    fn overflow(depth: u64) -> u64 {
        let frame = std::hint::black_box([depth; 512]);
        if frame[0] == 0 {
            return 0;
        }
        overflow(depth + 1).wrapping_add(frame[511])
    }
}
