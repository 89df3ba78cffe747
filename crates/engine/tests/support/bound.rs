//! The adapter `b`, whose jobs hold something that is stored in the workspace of their owner.
//!
//! What is held has a holder, jobs that wait for it, and the numbers of holders that completed and that
//! did not.

use catena_engine::requests::CallRequest;
use catena_engine::{
    Adapter, BoundEnd, BoundJob, BoundStart, Call, ExecutionMode, Failure, Operation, Registration,
    RootId, Roots, Turn, TurnFuture,
};
use catena_job::{JobId, Status};
use catena_value::{Map, NoCells, Value, Vector};

use super::value;

/// The adapter.
pub struct BoundAdapter;

/// What a job can hold.
#[derive(Debug, Default, PartialEq)]
pub struct Thing {
    pub holder: Option<JobId>,
    pub waiting: Vec<JobId>,
    pub done: i64,
    pub lost: i64,
}

impl Thing {
    pub fn read(roots: &Roots, name: &str) -> Thing {
        let root = roots.get(&RootId::workspace()).unwrap().cloned().unwrap_or_default();
        let root = root.fully_loaded(roots.cells()).unwrap();
        let Some(map) = root.as_map().and_then(|map| map.field(name)).and_then(Value::as_map)
        else {
            return Thing::default();
        };
        let id = |value: &Value| value.as_str().and_then(|text| text.parse().ok());
        let waiting = map.field("waiting").and_then(Value::as_vector).cloned().unwrap_or_default();
        let number = |name: &str| map.field(name).and_then(Value::as_i64).unwrap_or(0);
        Thing {
            holder: map.field("holder").and_then(id),
            waiting: waiting.iter(&NoCells).filter_map(|job| id(&job.unwrap())).collect(),
            done: number("done"),
            lost: number("lost"),
        }
    }

    fn write(&self, roots: &mut Roots, name: &str) {
        let waiting: Vector = self.waiting.iter().map(|job| Value::from(*job)).collect();
        let holder = self.holder.map_or(Value::Nil, Value::from);
        let members: [(&str, Value); 4] = [
            ("holder", holder),
            ("waiting", waiting.into()),
            ("done", self.done.into()),
            ("lost", self.lost.into()),
        ];
        let thing: Map = members.into_iter().collect();
        let root: Map = [(name, Value::from(thing))].into_iter().collect();
        roots.set(&RootId::workspace(), Some(root.into())).unwrap();
    }

    fn offer_next(&self, roots: &mut Roots) {
        if let (None, Some(next)) = (self.holder, self.waiting.first()) {
            roots.offer(*next);
        }
    }
}

impl Adapter for BoundAdapter {
    fn name(&self) -> &'static str {
        "b"
    }

    fn description(&self) -> &'static str {
        "Holds what its owner stores."
    }

    fn operations(&self) -> Vec<Registration> {
        let metadata = |name: &str| {
            value(&format!(
                r#"{{"name":"{name}","operation":{{"adapter":"b:{name}","idempotent":true}}}}"#
            ))
        };
        vec![
            Registration { name: "hold", mode: ExecutionMode::Task, metadata: metadata("hold") },
            Registration { name: "free", mode: ExecutionMode::Roots, metadata: metadata("free") },
        ]
    }

    fn roots(&self, _call: &Call) -> Result<Vec<RootId>, Failure> {
        Ok(vec![RootId::workspace()])
    }

    /// `free` cancels the holder and everything that waits.
    fn run_on_roots(&self, _call: &Call, roots: &mut Roots) -> Result<Value, Failure> {
        let thing = Thing::read(roots, "thing");
        for job in thing.holder.iter().chain(&thing.waiting) {
            roots.cancel(*job, "it was freed");
        }
        Ok(true.into())
    }

    fn binding(&self, operation: &str, input: &Value) -> Option<String> {
        let name = input.as_map()?.field("name")?.as_str()?.to_owned();
        (operation == "hold").then_some(name)
    }

    fn bound_roots(&self, _name: &str) -> Vec<RootId> {
        vec![RootId::workspace()]
    }

    fn start_bound(
        &self,
        job: BoundJob<'_>,
        _operation: &Operation,
        _input: &Value,
        roots: &mut Roots,
    ) -> Result<BoundStart, Failure> {
        let mut thing = Thing::read(roots, job.name);
        let is_first = thing.waiting.first().is_none_or(|first| *first == job.id);
        let start = if thing.holder.is_none() && is_first {
            thing.waiting.retain(|waiting| *waiting != job.id);
            thing.holder = Some(job.id);
            BoundStart::Run
        } else {
            if !thing.waiting.contains(&job.id) {
                thing.waiting.push(job.id);
            }
            BoundStart::Wait
        };
        thing.write(roots, job.name);
        Ok(start)
    }

    fn end_bound(
        &self,
        job: BoundJob<'_>,
        end: &BoundEnd<'_>,
        roots: &mut Roots,
    ) -> Result<(), Failure> {
        let mut thing = Thing::read(roots, job.name);
        if thing.holder == Some(job.id) {
            thing.holder = None;
            if end.status == Status::Complete {
                assert!(end.calls.iter().any(|call| call.key == "work" && call.output.is_some()));
                thing.done += 1;
            } else {
                thing.lost += 1;
            }
        }
        thing.waiting.retain(|waiting| *waiting != job.id);
        thing.offer_next(roots);
        thing.write(roots, job.name);
        Ok(())
    }

    fn run(&self, call: Call) -> TurnFuture {
        Box::pin(async move {
            let request = CallRequest {
                job: call.job.unwrap(),
                caller: call.caller.clone(),
                authority: None,
                key: "work".to_owned(),
                operation: "t:effect".to_owned(),
                input: call.input.clone(),
                is_detached: false,
            };
            match call.host.call(request).await {
                Ok(view) if view.status() == Status::Complete => Turn::Complete(true.into()),
                Ok(view) => {
                    Turn::Failed(Failure::new("work", format!("the work is {}", view.status())))
                }
                Err(failure) => Turn::Failed(failure),
            }
        })
    }
}
