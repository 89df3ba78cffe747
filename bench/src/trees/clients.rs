//! Clients that request anything of any tree, in any order.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use catena_store::testing::rng::Rng;
use catena_value::Value;

use super::tree::{Leaves, Tree, job, status_of, sub_jobs};
use crate::Fault;
use crate::json::{read, text};
use crate::web::{Client, invocation, post, put};

/// How long a client waits before it connects again to a venue that was killed.
const RECONNECT: Duration = Duration::from_millis(5);

/// How many trees of a size run at a time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Population {
    pub(super) steps: usize,
    pub(super) trees: usize,
}

/// A registered tree.
pub(super) struct Definition {
    pub(super) steps: usize,
    pub(super) leaves: Leaves,
    pub(super) id: String,
}

/// What all clients share.
pub(super) struct Shared {
    address: Mutex<SocketAddr>,
    trees: Mutex<Vec<Tree>>,
    is_stopped: AtomicBool,
    /// The number of the next tree that is asked for: each has its own effects.
    runs: AtomicU64,
    /// The number of responses by request and status.
    responses: Mutex<BTreeMap<(&'static str, u16), u64>>,
    pub(super) definitions: Vec<Definition>,
    pub(super) populations: Vec<Population>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(
        address: SocketAddr,
        definitions: Vec<Definition>,
        populations: Vec<Population>,
        first_run: u64,
    ) -> Shared {
        Shared {
            address: Mutex::new(address),
            trees: Mutex::default(),
            is_stopped: AtomicBool::new(false),
            runs: AtomicU64::new(first_run),
            responses: Mutex::default(),
            definitions,
            populations,
        }
    }

    pub(super) fn move_to(&self, address: SocketAddr) {
        *locked(&self.address) = address;
    }

    pub(super) fn stop(&self, stop: bool) {
        self.is_stopped.store(stop, Ordering::Relaxed);
    }

    pub(super) fn trees(&self) -> MutexGuard<'_, Vec<Tree>> {
        locked(&self.trees)
    }

    /// Changes what is known of a tree.
    pub(super) fn update(&self, root: &str, change: impl FnOnce(&mut Tree)) {
        if let Some(tree) = self.trees().iter_mut().find(|tree| tree.root == root) {
            change(tree);
        }
    }

    /// The responses by request, as text.
    pub(super) fn responses(&self) -> String {
        let responses = locked(&self.responses);
        let parts = responses.iter().map(|((name, status), n)| format!("{name} {status}: {n}"));
        parts.collect::<Vec<_>>().join(", ")
    }

    /// Sends requests until the clients are stopped. A broken connection is expected, since the venue
    /// is killed.
    pub(super) fn client(&self, seed: u64) -> Result<(), Fault> {
        let mut rng = Rng::new(seed);
        while !self.is_stopped.load(Ordering::Relaxed) {
            let address = *locked(&self.address);
            match self.requests(address, &mut rng) {
                Err(error) if is_cut_off(&error) => std::thread::sleep(RECONNECT),
                ended => ended?,
            }
        }
        Ok(())
    }

    fn requests(&self, address: SocketAddr, rng: &mut Rng) -> Result<(), Fault> {
        let mut client = Client::connect(address)?;
        while !self.is_stopped.load(Ordering::Relaxed) {
            self.request(&mut client, address, rng)?;
        }
        Ok(())
    }

    fn request(
        &self,
        client: &mut Client,
        address: SocketAddr,
        rng: &mut Rng,
    ) -> Result<(), Fault> {
        if let Some(definition) = self.missing(rng) {
            self.start(client, address, definition)?;
            return Ok(());
        }
        let live = self.trees().iter().filter(|tree| !tree.has_ended).cloned().collect::<Vec<_>>();
        if live.is_empty() {
            return Ok(());
        }
        let tree = &live[rng.below(live.len() as u64) as usize];
        let root = tree.root.as_str();
        let any = |client: &mut Client, rng: &mut Rng| self.any_job(client, tree, rng);
        let message = if rng.chance(40) { r#"{"content":"done"}"# } else { r#"{"content":"x"}"# };
        let (name, id, path, body) = match rng.below(100) {
            0..=19 => ("pause", root.to_owned(), "/pause", "{}"),
            20..=44 => ("resume", root.to_owned(), "/resume", "{}"),
            45..=52 => ("pause", any(client, rng)?, "/pause", "{}"),
            53..=60 => ("resume", any(client, rng)?, "/resume", "{}"),
            61..=66 => ("message", root.to_owned(), "", message),
            67..=74 => ("message", any(client, rng)?, "", message),
            75..=77 => ("cancel", any(client, rng)?, "/cancel", "{}"),
            78 => ("cancel", root.to_owned(), "/cancel", "{}"),
            79 => ("delete", root.to_owned(), "/delete", "{}"),
            _ => {
                self.look(client, tree)?;
                return Ok(());
            }
        };
        if name == "delete" {
            self.update(root, |tree| (tree.is_deleted, tree.has_ended) = (true, true));
        }
        let path = format!("/api/v1/jobs/{id}{path}");
        let bytes = match name {
            "message" => post(address, &path, body),
            _ => put(address, &path, body),
        };
        let (status, answer) = client.ask(&bytes)?;
        *locked(&self.responses).entry((name, status)).or_default() += 1;
        match status {
            200 | 202 | 404 | 409 | 410 | 429 => Ok(()),
            _ => {
                let answer = String::from_utf8_lossy(&answer);
                Err(format!("{name} of {id} was answered with {status}: {answer}").into())
            }
        }
    }

    /// A definition of which fewer trees run than should.
    fn missing(&self, rng: &mut Rng) -> Option<&Definition> {
        let trees = self.trees();
        let count = |steps| trees.iter().filter(|t| t.steps == steps && !t.has_ended).count();
        let wanted = self.populations.iter().find(|size| count(size.steps) < size.trees)?;
        let leaves = if rng.chance(50) { Leaves::Effects } else { Leaves::Repeatable };
        let matches = |definition: &&Definition| {
            definition.steps == wanted.steps && definition.leaves == leaves
        };
        self.definitions.iter().find(matches)
    }

    /// Starts a tree and returns its root.
    pub(super) fn start(
        &self,
        client: &mut Client,
        address: SocketAddr,
        definition: &Definition,
    ) -> Result<String, Fault> {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        let body = invocation(&definition.id, &format!(r#"{{"run":"{run}"}}"#));
        let (status, answer) = client.ask(&post(address, "/api/v1/invoke", &body))?;
        if !(200..=201).contains(&status) {
            return Err(format!("{status}: {}", String::from_utf8_lossy(&answer)).into());
        }
        let root = text(&read(&answer)?, "id");
        self.trees().push(Tree::new(&root, definition.steps));
        Ok(root)
    }

    /// Reads the root of a tree and remembers its sub-jobs. `None` if it was deleted.
    fn look(&self, client: &mut Client, tree: &Tree) -> Result<Option<Value>, Fault> {
        let Some(found) = job(client, &tree.root)? else {
            let is_deleted =
                self.trees().iter().any(|known| known.root == tree.root && known.is_deleted);
            if is_deleted {
                return Ok(None);
            }
            return Err(format!("{} was acknowledged and does not exist", tree.root).into());
        };
        let has_ended = status_of(&found)?.is_terminal();
        let below = sub_jobs(client, &found)?;
        self.update(&tree.root, |tree| {
            tree.has_ended |= has_ended;
            tree.known.extend(below);
        });
        Ok(Some(found))
    }

    /// Any job of a tree: a step, or a step of a step.
    fn any_job(&self, client: &mut Client, tree: &Tree, rng: &mut Rng) -> Result<String, Fault> {
        let Some(mut at) = self.look(client, tree)? else { return Ok(tree.root.clone()) };
        loop {
            let below = sub_jobs(client, &at)?;
            let id = text(&at, "id");
            if below.is_empty() {
                return Ok(id);
            }
            self.update(&tree.root, |tree| tree.known.extend(below.iter().cloned()));
            let next = below[rng.below(below.len() as u64) as usize].clone();
            match job(client, &next)? {
                Some(found) if rng.chance(60) => at = found,
                _ => return Ok(next),
            }
        }
    }
}

/// Whether an error is one that a kill of the venue causes.
pub(super) fn is_cut_off(error: &Fault) -> bool {
    error.is::<std::io::Error>() || error.to_string() == "the venue closed the connection"
}
