//! Properties of agents: merging is a join, and a turn costs the same however long the timeline is.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests say what must hold")]

use catena_job::agent::{Agent, AgentStatus, Message, TurnResult, merge};
use catena_value::{Map, NoCells, Value};
use proptest::prelude::*;

fn record() -> impl Strategy<Value = Value> {
    // Few distinct times and states, so that ties and equal records occur.
    (0i64..4, 0usize..4, 0i64..3).prop_map(|(ts, status, state)| {
        let mut agent = Agent::new(ts, Map::new().into(), state.into(), Value::Nil);
        agent.status = AgentStatus::ALL[status];
        agent.to_value()
    })
}

proptest! {
    #[test]
    fn merging_is_commutative_associative_and_idempotent(a in record(), b in record(), c in record()) {
        prop_assert_eq!(merge(&a, &b), merge(&b, &a));
        prop_assert_eq!(merge(merge(&a, &b), &c), merge(&a, merge(&b, &c)));
        prop_assert_eq!(merge(&a, &a), &a);
        let merged = merge(&a, &b);
        prop_assert!(*merged == a || *merged == b, "a mixture of two records");
    }

    #[test]
    fn the_later_write_wins(ts in 0i64..1_000, more in 1i64..1_000) {
        let at = |ts| Agent::new(ts, Map::new().into(), Value::Nil, Value::Nil).to_value();
        let (earlier, later) = (at(ts), at(ts + more));
        prop_assert_eq!(merge(&earlier, &later), &later);
    }
}

/// An agent after a number of turns.
fn after_turns(turns: u64) -> Agent {
    let mut agent = Agent::new(0, Map::new().into(), Value::Nil, Value::Nil);
    for _ in 0..turns {
        agent = turn(agent);
    }
    agent
}

fn turn(agent: Agent) -> Agent {
    let message = Message {
        id: "m".to_owned(),
        ts: 1,
        from: "did:key:me".to_owned(),
        content: "hello".into(),
        session: None,
    };
    let agent = agent.deliver(&message, &NoCells).unwrap();
    let turn = TurnResult {
        start: 1,
        end: 2,
        op: "test:tally".to_owned(),
        state: agent.state.clone(),
        messages: agent.inbox.clone(),
        result: Value::Nil,
        new_state: Some(1i64.into()),
    };
    agent.succeed(turn, &NoCells).unwrap()
}

/// The number of cells that one more turn adds to those that are stored.
fn cells_of_one_turn(agent: Agent) -> usize {
    let before = agent.to_value();
    let stored: std::collections::HashSet<_> =
        catena_value::new_cells(&before, |_| false).into_iter().map(|cell| cell.id).collect();
    catena_value::new_cells(&turn(agent).to_value(), |id| stored.contains(id)).len()
}

#[test]
fn a_turn_creates_as_many_cells_after_100_000_turns_as_after_10() {
    let few = cells_of_one_turn(after_turns(10));
    let many = cells_of_one_turn(after_turns(100_000));
    assert!(few > 0 && many <= few + 5, "{few} cells after 10 turns, {many} after 100,000");
}
