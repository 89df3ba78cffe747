//! Acting for somebody else: what the delegations (`ucans`) of a request permit.
//!
//! A request may carry two kinds of delegations. One is addressed to its caller: the caller, usually
//! another venue, acts for the issuer. Then the request belongs to an account of its own, named after
//! both, so that two users of one venue are two accounts here, and neither is the account that the
//! user has here under their own key. The other kind is addressed to this venue: steps on other
//! venues may present it. It must come from the user who makes the request, directly or through the
//! calling venue, because every venue that has ever been shown a delegation could repeat it.
//!
//! All of them go with the request: what their capabilities permit with the data of others is decided by
//! the engine, for each operation.
//!
//! Everything is verified before the request has any effect.

use catena_auth::Delegation;
use catena_engine::{Caller, Role};

use crate::identity::authenticate::{Admission, AuthError, Authenticator};

impl Authenticator {
    /// The user who delegated: the issuer or, if this venue issued the delegation, its user.
    fn delegator(&self, delegation: &Delegation) -> String {
        let own = self.own_dids();
        let venue = own.iter().find(|did| **did == delegation.issuer);
        delegation.delegator(venue.unwrap_or(&"")).to_owned()
    }

    /// The caller as which a request with these delegations acts. `now` is Unix time in
    /// milliseconds.
    pub(crate) fn act_under(
        &self,
        caller: &Caller,
        admission: Admission,
        delegations: Vec<String>,
        now: i64,
    ) -> Result<Caller, AuthError> {
        if delegations.is_empty() {
            return match admission {
                Admission::Admitted => Ok(caller.clone()),
                _ => Err(AuthError::NotListed(caller.did.to_string())),
            };
        }
        let mut delegator: Option<String> = None;
        let mut to_present = Vec::new();
        for text in &delegations {
            let delegation = Delegation::verify(text, now.div_euclid(1000)).map_err(refused)?;
            let issuer = self.delegator(&delegation);
            self.check_blocked(&issuer)?;
            if caller.is_authenticated() && delegation.audience == *caller.did {
                let is_other = |known: &String| *known != issuer;
                if delegator.as_ref().is_some_and(is_other) {
                    let reason = "the delegations are from two users; a request acts for one";
                    return Err(AuthError::Delegation(reason.to_owned()));
                }
                delegator = Some(issuer);
            } else {
                delegation.check_audience(&self.own_dids()).map_err(refused)?;
                to_present.push(issuer);
            }
        }
        let user = delegator.as_deref().unwrap_or(&caller.did);
        if let Some(issuer) = to_present.iter().find(|issuer| *issuer != user) {
            let reason = format!("it was issued by {issuer}, who does not make this request");
            return Err(AuthError::Delegation(reason));
        }
        // A caller that presents delegations acts under these, and not with the rights of an admin.
        let role = if caller.role == Role::Admin { Role::Known } else { caller.role };
        let is_admitted = match &delegator {
            Some(user) => self.is_listed(user, Role::Known),
            None => admission == Admission::Admitted,
        };
        if !is_admitted {
            return Err(AuthError::NotListed(user.to_owned()));
        }
        let account = match &delegator {
            Some(user) if *user != *caller.did => Caller::scoped(&caller.did, user),
            _ => caller.clone(),
        };
        Ok(Caller { role, delegations, ..account })
    }
}

fn refused(error: catena_auth::DelegationError) -> AuthError {
    AuthError::Delegation(error.to_string())
}
