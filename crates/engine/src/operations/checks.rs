//! Checks of inputs and outputs: small ones where they are, all others on a compute thread.

use std::sync::Arc;

use catena_value::Value;

use crate::error::StoreError;
use crate::operations::failure::Failure;
use crate::operations::operation::Conformity;
use crate::operations::{Operation, Operations, QueueOwner};
use crate::runtime::compute::ComputeError;

/// Returns why an input is refused. `None` if it conforms to the operation's schema.
pub(crate) fn input_refusal(conformity: Conformity) -> Option<String> {
    conformity.err().map(|violations| format!("invalid input: {violations}"))
}

impl Operations {
    /// Returns why an input is refused, as [`input_refusal`] does. Fails if too many checks wait.
    pub(crate) async fn refusal(
        &self,
        caller: &str,
        operation: &Arc<Operation>,
        input: &Value,
    ) -> Result<Option<String>, StoreError> {
        let refusal = match operation.check_input_inline(input) {
            Some(conformity) => input_refusal(conformity),
            None => Box::pin(self.refusal_of_large_input(caller, operation, input)).await?,
        };
        Ok(match operation.queue() {
            Some(spec) if refusal.is_none() && spec.owner == QueueOwner::Venue => {
                operation.adapter().place(operation, input, &self.environments).err()
            }
            _ => refusal,
        })
    }

    async fn refusal_of_large_input(
        &self,
        caller: &str,
        operation: &Arc<Operation>,
        input: &Value,
    ) -> Result<Option<String>, StoreError> {
        let operation = Arc::clone(operation);
        let input = input.clone();
        let check = move || operation.check_input(&input);
        match self.runtime.compute.run(caller, check).await {
            Ok(conformity) => Ok(input_refusal(conformity)),
            Err(ComputeError::Busy) => Err(StoreError::Busy),
            Err(error) => Ok(Some(format!("the input could not be checked: {error}"))),
        }
    }

    /// Checks that an output conforms to the operation's schema.
    pub(crate) async fn check_large_output(
        &self,
        caller: &str,
        operation: &Arc<Operation>,
        output: &Value,
    ) -> Result<Conformity, Failure> {
        let operation = Arc::clone(operation);
        let output = output.clone();
        let check = move || operation.check_output(&output);
        self.runtime.compute.run(caller, check).await.map_err(compute_failure)
    }
}

/// Returns the failure of a job whose work on a compute thread has no result.
pub(crate) fn compute_failure(error: ComputeError) -> Failure {
    match error {
        ComputeError::Busy => Failure::transient("busy", "too much work is waiting for a thread"),
        ComputeError::Late => Failure::new("too_slow", format!("the work was given up: {error}")),
        ComputeError::Panicked => Failure::new("adapter_broken", error.to_string()),
    }
}
