//! The venue is killed at every commit of a sequence of requests to trees of jobs, with and without that commit on the
//! disk, and once more at one of the first commits of the recovery that follows.
//!
//! The sequence is played again from its beginning for each commit, on a folder of its own. It ends when a venue
//! outlives it, so every commit that it has was the last one of some process.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use catena_job::state::Status;
use catena_store::testing::rng::Rng;

use super::clients::{Definition, Shared, is_cut_off};
use super::effects::EffectServer;
use super::tree::{Leaves, Tree, define, walk};
use super::{FINISH_WITHIN, POLL, Stress, agree, bring_to_end, recovered};
use crate::Fault;
use crate::json::{items, member, read, text};
use crate::web::{Client, Venue, put};

/// More commits than a sequence of requests has.
const COMMITS_MAX: u64 = 100_000;

/// Runs of a sequence at a time. They wait for the venue most of the time.
const PARALLEL: usize = 4;

/// The runs of one process have numbers of their own, so that each effect has one.
const RUNS_PER_PROCESS: u64 = 16;

/// At most this many commits of a recovery precede its kill.
const RECOVERY_COMMITS: u64 = 4;

/// Kills a venue at commits of sequences with trees of these numbers of steps, at every n-th commit of each. Returns the
/// number of kills.
pub(super) fn run(
    binary: &Path,
    folder: &Path,
    effects: &EffectServer,
    sizes: &[(usize, u64)],
) -> Result<u64, Fault> {
    let mut kills = 0;
    let runs = AtomicU64::new(0);
    for &(steps, stride) in sizes {
        for leaves in [Leaves::Effects, Leaves::Repeatable] {
            for kind in ["", ",durable"] {
                let sequence =
                    Sequence { binary, folder, effects, steps, leaves, kind, runs: &runs };
                let began = Instant::now();
                let killed = sequence.kill_at_every_commit(stride.max(1))?;
                let took = began.elapsed().as_secs();
                println!("{steps} steps, {leaves:?}{kind}: killed {killed} times in {took} s");
                kills += killed;
            }
        }
    }
    Ok(kills)
}

/// A sequence of requests, and where it is played.
struct Sequence<'a> {
    binary: &'a Path,
    folder: &'a Path,
    effects: &'a EffectServer,
    steps: usize,
    leaves: Leaves,
    /// Whether the commit at which the venue dies is on the disk: empty, or `,durable`.
    kind: &'static str,
    runs: &'a AtomicU64,
}

impl Sequence<'_> {
    /// Returns the number of kills.
    fn kill_at_every_commit(&self, stride: u64) -> Result<u64, Fault> {
        let next = AtomicU64::new(0);
        let kills = AtomicU64::new(0);
        let is_over = AtomicBool::new(false);
        let work = || -> Result<(), Fault> {
            while !is_over.load(Ordering::Relaxed) {
                let commits = next.fetch_add(stride, Ordering::Relaxed);
                let was_killed = self.kill_at(commits).map_err(|error| {
                    is_over.store(true, Ordering::Relaxed);
                    format!("killed at commit {commits}{}: {error}", self.kind)
                })?;
                if was_killed {
                    kills.fetch_add(1, Ordering::Relaxed);
                }
                if !was_killed || commits > COMMITS_MAX {
                    is_over.store(true, Ordering::Relaxed);
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..PARALLEL).map(|_| scope.spawn(work)).collect();
            for worker in workers {
                worker.join().map_err(|_| Fault::from("a client panicked"))??;
            }
            Ok::<_, Fault>(())
        })?;
        match kills.into_inner() {
            0 => Err("the venue does not kill itself: it must be an unoptimised binary".into()),
            kills => Ok(kills),
        }
    }

    /// Plays the sequence until the venue dies at a commit, starts it again and checks what is left. Returns true if
    /// it died.
    fn kill_at(&self, commits: u64) -> Result<bool, Fault> {
        let run = self.runs.fetch_add(RUNS_PER_PROCESS, Ordering::Relaxed);
        let data = self.folder.join(format!("run-{run}"));
        let stress = Stress {
            binary: self.binary.to_owned(),
            data: data.clone(),
            effects: self.effects.address,
        };
        let when = format!("{commits}{}", self.kind);
        let (shared, was_killed) = match stress.start_dying(&when)? {
            None => (None, true),
            Some(venue) => self.play_until_killed(venue, run)?,
        };
        let again = format!("{}{}", commits % RECOVERY_COMMITS, self.kind);
        if was_killed && let Some(venue) = stress.start_dying(&again)? {
            // A recovery with fewer commits is over now.
            let mut client = Client::connect(venue.address)?;
            match recovered(&mut client) {
                Err(error) if is_cut_off(&error) => venue.expect_killed()?,
                recovered => {
                    recovered?;
                    venue.kill()?;
                }
            }
        }
        if let Some(shared) = shared {
            let venue = stress.start_venue()?;
            shared.move_to(venue.address);
            self.adopt(&venue, &shared)?;
            agree(&venue, &shared)?;
            stress.check_end(&venue, &shared, &mut Rng::new(run))?;
        }
        std::fs::remove_dir_all(&data)?;
        Ok(was_killed)
    }

    /// Returns what was acknowledged, and whether the venue was killed. Nothing can have been if there was no
    /// definition yet.
    fn play_until_killed(
        &self,
        venue: Venue,
        first_run: u64,
    ) -> Result<(Option<Shared>, bool), Fault> {
        let mut shared = None;
        let played = self.play(&venue, first_run, &mut shared);
        match played {
            Err(error) if is_cut_off(&error) => {
                venue.expect_killed()?;
                Ok((shared, true))
            }
            played => {
                played?;
                venue.kill()?;
                Ok((shared, false))
            }
        }
    }

    /// The sequence of requests. One tree is paused as a whole and by a step, and runs to its end; another one loses a
    /// step and is paused and deleted.
    fn play(
        &self,
        venue: &Venue,
        first_run: u64,
        shared: &mut Option<Shared>,
    ) -> Result<(), Fault> {
        let address = venue.address;
        let mut client = Client::connect(address)?;
        let id = define(&mut client, address, self.steps, self.leaves, self.effects.address)?;
        let definition = || Definition { steps: self.steps, leaves: self.leaves, id: id.clone() };
        let shared: &Shared =
            shared.insert(Shared::new(address, vec![definition()], Vec::new(), first_run));
        let first = shared.start(&mut client, address, &definition())?;
        let control = |client: &mut Client, id: &str, action: &str| -> Result<(), Fault> {
            let path = format!("/api/v1/jobs/{id}/{action}");
            match client.ask(&put(address, &path, "{}"))? {
                // It may have ended, or other jobs of the tree run.
                (200 | 409, _) => Ok(()),
                (status, _) => Err(format!("{action} of {id}: {status}").into()),
            }
        };
        for action in ["pause", "resume"] {
            control(&mut client, &first, action)?;
        }
        let step = open_step(&mut client, &first)?;
        for (id, action) in [(&step, "pause"), (&first, "resume"), (&step, "resume")] {
            control(&mut client, id, action)?;
        }
        let second = shared.start(&mut client, address, &definition())?;
        let step = open_step(&mut client, &second)?;
        control(&mut client, &step, "pause")?;
        control(&mut client, &second, "pause")?;
        control(&mut client, &step, "cancel")?;
        shared.update(&second, |tree| (tree.is_deleted, tree.has_ended) = (true, true));
        control(&mut client, &second, "delete")?;
        let begun = Instant::now();
        while !bring_to_end(&mut client, address, &first)? {
            if begun.elapsed() > FINISH_WITHIN {
                return Err(format!("{first} does not end").into());
            }
            std::thread::sleep(POLL);
        }
        // What follows the end of the job belongs to it, too.
        std::thread::sleep(Duration::from_millis(50));
        Ok(())
    }

    /// Adds trees whose creation was durable and not answered.
    fn adopt(&self, venue: &Venue, shared: &Shared) -> Result<(), Fault> {
        let mut client = Client::connect(venue.address)?;
        let (status, body) = client.get("/api/v1/jobs?expand=true&limit=1000")?;
        if status != 200 {
            return Err(format!("the list of jobs: {status}").into());
        }
        for job in items(&read(&body)?, "items") {
            let id = text(&job, "id");
            let is_root = member(&job, "parent").is_none();
            let is_known = shared.trees().iter().any(|tree| tree.root == id);
            if is_root && !is_known {
                shared.trees().push(Tree::new(&id, self.steps));
            }
        }
        Ok(())
    }
}

/// A step of a tree that has not ended; the root if there is none.
fn open_step(client: &mut Client, root: &str) -> Result<String, Fault> {
    let seen = walk(client, root)?.unwrap_or_default();
    let is_open = |status: Status| !status.is_terminal();
    let step = seen.iter().find(|job| job.parent.is_some() && is_open(job.status));
    Ok(step.map_or_else(|| root.to_owned(), |step| step.id.clone()))
}
