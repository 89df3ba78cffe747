//! How the end of a turn becomes a record, and the failures that the engine itself causes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use catena_job::JobId;
use catena_job::chain::{AppendError, Change};
use catena_job::limits::{VALUE_BYTES_MAX, VALUE_DEPTH_MAX};
use catena_job::state::Event;
use catena_value::{Extent, NoCells, Value};

use crate::error::{ControlError, StoreError, TooMuchMemory};
use crate::limits::Limits;
use crate::operations::{
    Call, Cells, Failure, InlineCells, Operation, Operations, RootId, Roots, Turn, compute_failure,
};
use crate::requests::{Caller, Role};
use crate::runtime::compute::run_blocking;

/// Returns the failure of a job whose root has no sub-jobs left.
pub(crate) fn too_many_sub_jobs(max: u64) -> Failure {
    let text = format!("a root job has at most {max} sub-jobs in total");
    Failure::new("too_many_sub_jobs", text)
}

/// Returns the failure of a job that would hold too much in memory. It may succeed later.
pub(crate) fn too_much_memory(error: TooMuchMemory) -> Failure {
    Failure::transient("too_much_memory", error.to_string())
}

/// The failure of a job that cannot start further jobs, because its owner stores as much as it may.
pub(crate) fn storage_full(error: &StoreError) -> Failure {
    Failure::new("storage_full", error.to_string())
}

/// Executes an inline operation on a thread of the runtime and checks its output. `None` if it, or
/// the check, needs a compute thread; such an operation can be repeated there.
pub(crate) fn run_inline(call: &Call) -> Option<Result<Value, Failure>> {
    if !call.operation.runs_inline(&call.input) {
        return None;
    }
    let output = match execute_instant(call) {
        Ok(output) => output,
        Err(failure) => return Some(Err(failure)),
    };
    if let Err(failure) = check_extent(&output) {
        return Some(Err(failure));
    }
    let conformity = call.operation.check_output_inline(&output)?;
    Some(conformity.map(|()| output).map_err(|violations| invalid_output(&violations)))
}

/// Executes an instant operation, on whichever thread this is.
fn execute_instant(call: &Call) -> Result<Value, Failure> {
    let adapter = call.operation.adapter();
    let result = catch_unwind(AssertUnwindSafe(|| adapter.run_inline(call)));
    result.unwrap_or_else(|_| Err(adapter_panicked(adapter.name())))
}

/// Executes an operation on roots, on whichever thread this is, and checks its output. Undoes its
/// changes if it fails.
pub(crate) fn run_on_roots(call: &Call, roots: &mut Roots) -> Result<Value, Failure> {
    let savepoint = roots.savepoint();
    let adapter = call.operation.adapter();
    let result = catch_unwind(AssertUnwindSafe(|| adapter.run_on_roots(call, roots)));
    let result = result.unwrap_or_else(|_| Err(adapter_panicked(adapter.name())));
    let result = result.and_then(|output| {
        check_output_blocking(&call.operation, &output)?;
        if call.operation.is_read_only() && roots.is_changed() {
            let text = "the operation is declared as `readOnly` and changes data; this is a bug";
            return Err(Failure::new("adapter_broken", text));
        }
        Ok(output)
    });
    if result.is_err() {
        roots.restore(savepoint);
    }
    result
}

/// Returns why a caller may not change what an operation changes: beyond loopback, the anonymous
/// identity is everyone's and owns nothing.
pub(crate) fn ownership_refusal(
    limits: &Limits,
    caller: &Caller,
    operation: &Operation,
) -> Option<String> {
    if operation.is_read_only() || limits.anonymous_owns || caller.role != Role::Anonymous {
        return None;
    }
    let reference = operation.adapter_ref();
    Some(format!(
        "{reference} changes data that belongs to its caller, and the anonymous identity owns nothing \
         here; send a token of your own"
    ))
}

/// Obtains what an operation on roots needs besides them. Returns the roots that it uses.
pub(crate) async fn prepare_roots(call: &mut Call) -> Result<Vec<RootId>, Failure> {
    let adapter = Arc::clone(call.operation.adapter());
    let roots = adapter.roots(call)?;
    if let Some(preparing) = adapter.prepare(call) {
        call.prepared = Some(preparing.await?);
    }
    Ok(roots)
}

/// Returns the owner of the roots that a call uses: the caller, or whoever delegated their use.
pub(crate) fn roots_owner(call: &Call) -> Arc<str> {
    let other = call.operation.adapter().roots_owner(call);
    other.map_or_else(|| Arc::clone(call.caller.did.text()), Arc::from)
}

impl Operations {
    /// Returns roots of a user as they are stored.
    pub(crate) async fn load_roots(
        &self,
        owner: &str,
        cells: Cells,
        ids: Vec<RootId>,
    ) -> Result<Roots, StoreError> {
        let mut stored = Vec::with_capacity(ids.len());
        for id in ids {
            let root = self.store.root(&id.key(owner)).await?;
            stored.push((id, root));
        }
        Ok(Roots::new(owner, self.runtime.now(), cells, stored))
    }

    /// Returns roots of a user as they are stored, with all their cells.
    pub(crate) async fn load_all_roots(
        &self,
        owner: &str,
        ids: Vec<RootId>,
    ) -> Result<Roots, StoreError> {
        self.load_roots(owner, self.store.cells(), ids).await
    }

    /// The same, for an operation.
    pub(crate) async fn read_roots(&self, owner: &str, ids: Vec<RootId>) -> Result<Roots, Failure> {
        let roots = self.load_all_roots(owner, ids).await;
        roots.map_err(|error| Failure::transient("store", error.to_string()))
    }

    /// Executes an operation that only reads roots.
    async fn read_on_roots(&self, mut call: Call) -> Result<Value, Failure> {
        if !call.operation.is_read_only() {
            let text = "the operation changes stored data; invoke it as a recorded job";
            return Err(Failure::new("needs_a_job", text));
        }
        let ids = prepare_roots(&mut call).await?;
        let owner = roots_owner(&call);
        let failed = |error: StoreError| Failure::transient("store", error.to_string());
        if !call.operation.needs_compute_thread(&call.input) {
            let cells = InlineCells::new(self.store.cells());
            let roots = self.load_roots(&owner, cells.clone(), ids.clone()).await;
            let result = run_on_roots(&call, &mut roots.map_err(failed)?);
            if !cells.is_exhausted() {
                return result;
            }
        }
        let roots = self.load_roots(&owner, self.store.cells(), ids).await;
        let mut roots = roots.map_err(failed)?;
        let work = move || run_on_roots(&call, &mut roots);
        self.runtime.compute.run(&owner, work).await.map_err(compute_failure)?
    }

    /// Executes an instant operation on a compute thread.
    pub(crate) async fn compute(&self, call: Call) -> Result<Value, Failure> {
        let caller = call.caller.did.clone();
        let computed = self.runtime.compute.run(&caller, move || execute_instant(&call)).await;
        computed.map_err(compute_failure)?
    }

    /// Executes one turn of an operation that was not executed inline.
    pub(crate) async fn execute(&self, call: Call) -> Turn {
        if call.operation.is_instant() {
            return self.compute(call).await.into();
        }
        if call.operation.uses_roots() {
            return self.read_on_roots(call).await.into();
        }
        let adapter = Arc::clone(call.operation.adapter());
        adapter.run(call).await
    }

    /// Checks that an output conforms to the operation's schema and to the bounds of a value.
    pub(crate) async fn check_output(
        &self,
        caller: &str,
        operation: &Arc<Operation>,
        output: &Value,
    ) -> Result<(), Failure> {
        check_extent(output)?;
        let conformity = match operation.check_output_inline(output) {
            Some(conformity) => conformity,
            None => self.check_large_output(caller, operation, output).await?,
        };
        conformity.map_err(|violations| invalid_output(&violations))
    }
}

/// Checks the output of an orchestration, whose end is decided in one step. A large one is checked on
/// another thread, because the thread of the runtime has too small a stack, and is waited for.
pub(crate) fn check_output_blocking(
    operation: &Arc<Operation>,
    output: &Value,
) -> Result<(), Failure> {
    check_extent(output)?;
    let conformity = match operation.check_output_inline(output) {
        Some(conformity) => conformity,
        None => {
            let (checked, output) = (Arc::clone(operation), output.clone());
            run_blocking(move || checked.check_output(&output)).map_err(compute_failure)?
        }
    };
    conformity.map_err(|violations| invalid_output(&violations))
}

/// Returns the change that records an output or a failure.
pub(crate) fn outcome_change(result: Result<Value, Failure>, now: i64) -> Change {
    match result {
        Ok(output) => Change::new(Event::Finished { output }, now),
        Err(failure) => {
            let mut change = Change::new(Event::Erred { error: failure.error }, now);
            change.extra.push(("errorCode", failure.code.into()));
            change
        }
    }
}

/// Returns the change that records that a job was refused before it started.
pub(crate) fn refusal_change(failure: Failure, now: i64) -> Change {
    let mut change = Change::new(Event::Refused { error: failure.error }, now);
    change.extra.push(("errorCode", failure.code.into()));
    change
}

/// Checks that an output is within the bounds of a value.
fn check_extent(output: &Value) -> Result<(), Failure> {
    let bounds = Extent { bytes: VALUE_BYTES_MAX, depth: VALUE_DEPTH_MAX };
    let measured = bounds.measure(output, &NoCells).map_err(|error| {
        Failure::new("output_too_large", format!("the output cannot be stored: it {error}"))
    });
    measured.map(drop)
}

fn invalid_output(violations: &str) -> Failure {
    let text = format!("the output violates the operation's output schema: {violations}");
    Failure::new("invalid_output", text)
}

/// The failure of a job whose adapter panicked.
pub(crate) fn adapter_panicked(adapter: &str) -> Failure {
    Failure::new("adapter_broken", format!("the {adapter} adapter panicked; this is a bug"))
}

/// The failure of a job that was interrupted and must not be repeated.
pub(crate) fn interrupted() -> Failure {
    Failure::new(
        "interrupted",
        "the venue stopped while the operation ran; its effects are unknown",
    )
}

/// The failure of a job whose worker was lost and that must not be repeated.
pub(crate) fn worker_lost() -> Failure {
    Failure::new(
        "interrupted",
        "the worker was lost while the operation ran; its effects are unknown",
    )
}

/// The failure of a job whose executors were lost as often as it may be attempted.
pub(crate) fn executor_lost(attempts: u32) -> Failure {
    let text = format!("no executor completed the job in {attempts} attempts");
    Failure::new("executor_lost", text)
}

/// The failure of a job that was interrupted as often as it may be.
pub(crate) fn interrupted_too_often(interruptions: u32) -> Failure {
    let text = format!("the venue stopped during each of {interruptions} attempts");
    Failure::new("interrupted", text)
}

/// The failure of a job whose payload cannot be read.
pub(crate) fn incomplete_payload(reason: &str) -> Failure {
    Failure::new(
        "incomplete_payload",
        format!("the job cannot run because its payload is incomplete: {reason}"),
    )
}

/// The error text of a job that exceeded its execution limit.
pub(crate) fn time_limit_exceeded(limit: Duration) -> String {
    format!("the operation ran longer than its limit of {} ms", limit.as_millis())
}

/// The failure of an attempt that took longer than one attempt may take.
pub(crate) fn attempt_time_exceeded(limit: Duration) -> Failure {
    let text = format!("the attempt took longer than its limit of {} ms", limit.as_millis());
    Failure::transient("attempt_timeout", text)
}

/// Maps the failure to append a record that the engine itself made.
pub(crate) fn append_error(error: AppendError) -> StoreError {
    StoreError::Damaged(format!("cannot append a record: {error}"))
}

/// Maps the failure to append a record that a control request made.
pub(crate) fn control_error(job: JobId, error: AppendError) -> ControlError {
    match error {
        AppendError::HistoryFull => ControlError::HistoryFull(job),
        error => ControlError::Store(append_error(error)),
    }
}
