//! On whose authority an agent acts: its owner's, narrowed by its capabilities.
//!
//! Whoever creates or configures an agent under a restriction, such as another agent, leaves that
//! restriction with it, so that nobody gains anything by acting through an agent.

use catena_engine::requests::{Restriction, capabilities};
use catena_engine::{Caller, Failure};
use catena_job::agent::Control;
use catena_value::Value;

use super::stored::Stored;
use crate::limits::AGENT_RESTRICTIONS_MAX;

/// The callers of a run.
pub(super) struct RunCallers {
    /// Who must be permitted to run the transition: whoever requested the run, restricted as those who
    /// configured the agent.
    pub(super) configured: Caller,
    /// On whose authority the transition acts: the same, narrowed by the capabilities of the agent.
    pub(super) narrowed: Caller,
}

impl RunCallers {
    pub(super) fn new(caller: &Caller, stored: &Stored) -> RunCallers {
        let mut configured = caller.clone();
        if !stored.control.authority.is_nil() {
            let restriction = Restriction::from_value(&stored.control.authority);
            configured = configured.with_restriction(&restriction);
        }
        let narrowed = match &stored.agent.caps {
            Value::Nil => configured.clone(),
            caps => {
                let grant = caps.as_map().and_then(|map| map.field("grant"));
                // What cannot be read permits nothing.
                configured.narrowed(grant.and_then(capabilities).unwrap_or_default())
            }
        };
        RunCallers { configured, narrowed }
    }
}

/// Records the restriction of a caller who configures an agent.
pub(super) fn restrict(control: &mut Control, caller: &Caller) -> Result<(), Failure> {
    let Some(restriction) = &caller.restriction else { return Ok(()) };
    let known = match &control.authority {
        Value::Nil => Caller::known(""),
        known => Caller::known("").with_restriction(&Restriction::from_value(known)),
    };
    let all = known.with_restriction(restriction);
    let Some(all) = all.restriction else { return Ok(()) };
    if all.caps.len() > AGENT_RESTRICTIONS_MAX {
        let text = format!(
            "an agent is configured by callers with at most {AGENT_RESTRICTIONS_MAX} different lists of \
             capabilities"
        );
        return Err(Failure::new("too_many_restrictions", text));
    }
    control.authority = all.to_value();
    Ok(())
}

#[cfg(test)]
mod tests {
    use catena_engine::capability::Capability;

    use super::*;

    fn reader() -> Caller {
        let read = Capability { with: "w/".to_owned(), can: "crud/read".to_owned() };
        Caller::known("did:key:me").narrowed(vec![read])
    }

    #[test]
    fn a_restriction_is_recorded_once() {
        let mut control = Control::new(1);
        restrict(&mut control, &Caller::known("did:key:me")).unwrap();
        assert_eq!(control.authority, Value::Nil);
        restrict(&mut control, &reader()).unwrap();
        let once = control.authority.clone();
        restrict(&mut control, &reader()).unwrap();
        assert_eq!(control.authority, once);
        restrict(&mut control, &reader().for_model()).unwrap();
        assert_ne!(control.authority, once);
        for number in 0..AGENT_RESTRICTIONS_MAX {
            let other = Capability { with: format!("w/{number}"), can: "*".to_owned() };
            let caller = Caller::known("did:key:me").narrowed(vec![other]);
            let recorded = restrict(&mut control, &caller);
            assert_eq!(recorded.is_ok(), number + 1 < AGENT_RESTRICTIONS_MAX);
        }
    }
}
