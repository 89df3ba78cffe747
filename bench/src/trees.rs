//! `trees`: whatever clients request of trees of jobs and whenever the venue is killed, at random moments or (with
//! `--every-commit`) at every commit of a sequence of requests, the jobs of each tree agree, everything can be
//! finished, every chain verifies, no slot leaks, and no effect happens twice.

mod clients;
mod commits;
mod effects;
mod tree;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use catena_job::state::Status;
use catena_store::testing::rng::Rng;

use self::clients::{Definition, Population, Shared};
use self::effects::EffectServer;
use self::tree::{
    Disagreement, Leaves, Seen, define, disagreement, followed, job, status_of, walk,
};
use crate::Fault;
use crate::json::{member, read, text};
use crate::web::{Client, Options, Venue, invocation, post, put};

/// Many clients pause, resume, cancel, message and delete trees of jobs while the venue is killed.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    /// The number of kills.
    #[arg(long, default_value_t = 30)]
    crashes: usize,
    /// The number of clients.
    #[arg(long, default_value_t = 8)]
    clients: u64,
    /// The longest time before a kill in ms.
    #[arg(long, default_value_t = 3_000)]
    longest: u64,
    /// The seed of all random choices; another one each time by default.
    #[arg(long)]
    seed: Option<u64>,
    /// Kill the venue at every commit of a sequence of requests instead of at random moments. The binary must be
    /// an unoptimised one.
    #[arg(long)]
    every_commit: bool,
    /// With `--every-commit`: the numbers of steps of the trees.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 40])]
    steps: Vec<usize>,
    /// With `--every-commit`: kill at every n-th commit only.
    #[arg(long, default_value_t = 1)]
    stride: u64,
    /// A run of a few seconds that only shows that everything works.
    #[arg(long)]
    small: bool,
}

/// Parent and steps agree this long after the last request, or after recovery. A venue that is not
/// optimised, next to three others on a busy machine, needs longer to change a thousand jobs; what does not agree by
/// then never does.
const AGREE_WITHIN: Duration = Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 1 });

/// After this time a tree that does not agree is looked at once more, for the message of the failure.
const LAST_LOOK: Duration = Duration::from_secs(60);

/// A tree whose clients have gone must be finished within this time.
const FINISH_WITHIN: Duration = Duration::from_secs(120);

/// Recovery must have ended within this time.
const RECOVER_WITHIN: Duration = Duration::from_secs(60);

/// In a small run, trees of 40 steps are killed at every so many commits.
const SMALL_STRIDE: u64 = 40;

/// How often something is checked that takes time.
const POLL: Duration = Duration::from_millis(20);

pub(crate) fn run(args: &Args) -> Result<(), Fault> {
    if args.every_commit { kill_at_every_commit(args) } else { kill_at_random(args) }
}

fn kill_at_every_commit(args: &Args) -> Result<(), Fault> {
    let effects = EffectServer::start()?;
    let (folder, _temporary) = args.options.folder()?;
    let binary = args.options.binary()?;
    let sizes: Vec<(usize, u64)> = if args.small {
        vec![(2, 1), (40, SMALL_STRIDE)]
    } else {
        args.steps.iter().map(|steps| (*steps, args.stride)).collect()
    };
    let kills = commits::run(&binary, &folder, &effects, &sizes)?;
    let count = effects.check_each_once()?;
    println!(
        "killed {kills} times: all trees agreed, ended and verify; {count} effects, each once"
    );
    Ok(())
}

fn kill_at_random(args: &Args) -> Result<(), Fault> {
    let seed = args.seed.unwrap_or_else(random);
    println!("seed {seed}");
    let effects = EffectServer::start()?;
    let (folder, _temporary) = args.options.folder()?;
    let stress = Stress {
        binary: args.options.binary()?,
        data: folder.join("venue"),
        effects: effects.address,
    };
    let venue = stress.start_venue()?;
    let shared = shared(&venue, args.small, effects.address)?;
    let crashes = if args.small { 4 } else { args.crashes };
    let mut rng = Rng::new(seed);
    let mut slowest = Duration::ZERO;
    let mut venue = venue;
    for crash in 1..=crashes {
        let seeds: Vec<u64> = (0..args.clients).map(|_| rng.number()).collect();
        let longest = if args.small { 1_500 } else { args.longest };
        venue = stress.crash(venue, &shared, &seeds, longest.max(1), &mut rng)?;
        let took = agree(&venue, &shared)?;
        slowest = slowest.max(took);
        let trees = shared.trees().len();
        println!("{crash} kills, {trees} trees, agreed {} ms after recovery", took.as_millis());
    }
    println!("responses: {}", shared.responses());
    let Checked { agreed, verified, deleted } = stress.check_end(&venue, &shared, &mut rng)?;
    let count = effects.check_each_once()?;
    println!(
        "after {crashes} kills: {} trees, {deleted} of them deleted; parents and steps agreed within {} ms; all ended, {verified} trees verify with all jobs; nothing runs or waits; {count} effects, each once",
        shared.trees().len(),
        slowest.max(agreed).as_millis(),
    );
    Ok(())
}

/// Registers the trees.
fn shared(venue: &Venue, small: bool, effects: SocketAddr) -> Result<Shared, Fault> {
    let population = |steps, trees| Population { steps, trees };
    let populations = if small {
        vec![population(2, 4), population(40, 2)]
    } else {
        vec![population(2, 8), population(40, 4), population(1_000, 1)]
    };
    let mut client = Client::connect(venue.address)?;
    let mut definitions = Vec::new();
    for Population { steps, .. } in &populations {
        for leaves in [Leaves::Effects, Leaves::Repeatable] {
            let id = define(&mut client, venue.address, *steps, leaves, effects)?;
            definitions.push(Definition { steps: *steps, leaves, id });
        }
    }
    Ok(Shared::new(venue.address, definitions, populations, 0))
}

struct Stress {
    binary: PathBuf,
    data: PathBuf,
    effects: SocketAddr,
}

/// What the check at the end of a run found.
struct Checked {
    /// The time until parents and sub-jobs agreed.
    agreed: Duration,
    /// The number of trees that verify.
    verified: usize,
    /// The number of trees that were deleted.
    deleted: usize,
}

impl Stress {
    fn start_venue(&self) -> Result<Venue, Fault> {
        let host = self.effects.to_string();
        Venue::start_with(&self.binary, &self.data, None, &["--allow-host", &host])
    }

    /// Starts a venue that kills itself at a commit. `None` if it did so before it was ready.
    fn start_dying(&self, when: &str) -> Result<Option<Venue>, Fault> {
        let host = self.effects.to_string();
        Venue::start_dying(&self.binary, &self.data, &["--allow-host", &host], when)
    }

    /// Finishes everything and checks what is left.
    fn check_end(&self, venue: &Venue, shared: &Shared, rng: &mut Rng) -> Result<Checked, Fault> {
        finish(venue, shared, rng)?;
        let agreed = agree(venue, shared)?;
        let verified = self.verify(venue, shared)?;
        let deleted = check_deleted(venue, shared)?;
        check_slots(venue)?;
        Ok(Checked { agreed, verified, deleted })
    }

    /// Lets clients work until the venue is killed, starts it again, in one of three cases kills it
    /// while it recovers, and stops the clients. Returns the new venue.
    fn crash(
        &self,
        mut venue: Venue,
        shared: &Shared,
        seeds: &[u64],
        longest: u64,
        rng: &mut Rng,
    ) -> Result<Venue, Fault> {
        shared.stop(false);
        std::thread::scope(|scope| {
            let clients: Vec<_> =
                seeds.iter().map(|seed| scope.spawn(|| shared.client(*seed))).collect();
            let restarted = || -> Result<Venue, Fault> {
                std::thread::sleep(Duration::from_millis(rng.below(longest)));
                loop {
                    venue.check_running()?;
                    venue.kill()?;
                    venue = self.start_venue()?;
                    shared.move_to(venue.address);
                    if !rng.chance(33) {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(rng.below(100)));
                }
                // Some requests reach it while it recovers.
                std::thread::sleep(Duration::from_millis(rng.below(300)));
                Ok(venue)
            };
            let restarted = restarted();
            shared.stop(true);
            for client in clients {
                client.join().map_err(|_| Fault::from("a client panicked"))??;
            }
            restarted
        })
    }

    /// Verifies every tree with all its jobs. Returns the number of trees.
    fn verify(&self, venue: &Venue, shared: &Shared) -> Result<usize, Fault> {
        let mut client = Client::connect(venue.address)?;
        let trees = shared.trees().clone();
        let mut verified = 0;
        for tree in trees {
            if job(&mut client, &tree.root)?.is_none() {
                continue;
            }
            verify_deep(&self.binary, venue.address, &tree.root)?;
            verified += 1;
        }
        Ok(verified)
    }
}

/// Verifies a job and everything below it with the command that users have.
fn verify_deep(binary: &Path, address: SocketAddr, job: &str) -> Result<(), Fault> {
    let url = format!("http://{address}/api/v1/jobs/{job}");
    let output = Command::new(binary)
        .args(["verify", &url, "--deep", "--json"])
        .stdin(Stdio::null())
        .output()?;
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{job} does not verify: {report} {error}").into());
    }
    let report = read(report.as_bytes())?;
    let unavailable = member(&report, "subjobsUnavailable").and_then(|count| count.as_i64());
    match unavailable {
        Some(0) => Ok(()),
        other => Err(format!("{job}: {other:?} sub-jobs could not be verified").into()),
    }
}

/// Waits until the venue has recovered.
fn recovered(client: &mut Client) -> Result<(), Fault> {
    let begun = Instant::now();
    while begun.elapsed() < RECOVER_WITHIN {
        let (_, body) = client.get("/readyz?verbose=true")?;
        let recovery = member(&read(&body)?, "recovery").unwrap_or_default();
        if text(&recovery, "status") == "done" {
            return Ok(());
        }
        std::thread::sleep(POLL);
    }
    Err("recovery does not end".into())
}

/// Waits until the jobs of every tree agree, and returns how long that took after recovery.
fn agree(venue: &Venue, shared: &Shared) -> Result<Duration, Fault> {
    let mut client = Client::connect(venue.address)?;
    recovered(&mut client)?;
    let settled = Instant::now();
    let mut open: Vec<String> = shared.trees().iter().map(|tree| tree.root.clone()).collect();
    let mut slowest = Duration::ZERO;
    while !open.is_empty() {
        // What is found by looking only later than allowed is a fault; looking takes time itself.
        let began = settled.elapsed();
        let mut disagree = Vec::new();
        for root in open {
            if let Some(fault) = check(&mut client, shared, &root)? {
                if began > AGREE_WITHIN {
                    let ms = began.as_millis();
                    let fault = describe(&mut client, shared, &root, fault)?;
                    return Err(format!("after {ms} ms {fault}").into());
                }
                disagree.push(root);
            } else {
                slowest = slowest.max(began);
            }
        }
        open = disagree;
        std::thread::sleep(POLL);
    }
    Ok(slowest)
}

/// Tells whether jobs that do not agree are slow or never will.
fn describe(
    client: &mut Client,
    shared: &Shared,
    root: &str,
    fault: Disagreement,
) -> Result<String, Fault> {
    let Disagreement { parent, text } = fault;
    let followed = followed(client, &parent)?;
    std::thread::sleep(LAST_LOOK);
    let later = check(client, shared, root)?.map_or("they agree".to_owned(), |fault| fault.text);
    Ok(format!("{text}; {followed}; {} s later {later}", LAST_LOOK.as_secs()))
}

/// Returns why the jobs of a tree do not agree.
fn check(client: &mut Client, shared: &Shared, root: &str) -> Result<Option<Disagreement>, Fault> {
    let Some(seen) = walk(client, root)? else {
        let is_deleted = shared.trees().iter().any(|tree| tree.root == root && tree.is_deleted);
        if is_deleted {
            return Ok(None);
        }
        return Err(format!("{root} was acknowledged and does not exist").into());
    };
    let has_ended = seen.first().is_some_and(|root| root.status.is_terminal());
    shared.update(root, |tree| {
        tree.has_ended |= has_ended;
        tree.known.extend(seen.iter().map(|job| job.id.clone()));
    });
    disagreement(client, &seen)
}

/// Finishes every tree: one in three is cancelled, the others run to their end.
fn finish(venue: &Venue, shared: &Shared, rng: &mut Rng) -> Result<(), Fault> {
    let mut client = Client::connect(venue.address)?;
    let roots: Vec<String> = shared.trees().iter().map(|tree| tree.root.clone()).collect();
    let mut open = Vec::new();
    for root in roots {
        let is_cancelled = rng.chance(33);
        if is_cancelled {
            let path = format!("/api/v1/jobs/{root}/cancel");
            let (status, body) = client.ask(&put(venue.address, &path, "{}"))?;
            if !matches!(status, 200 | 404 | 410) {
                let body = String::from_utf8_lossy(&body);
                return Err(format!("{root} cannot be cancelled: {status}, {body}").into());
            }
        }
        open.push(root);
    }
    let begun = Instant::now();
    while !open.is_empty() {
        let mut left = Vec::new();
        for root in open {
            if !bring_to_end(&mut client, venue.address, &root)? {
                left.push(root);
            }
        }
        open = left;
        if let (Some(root), true) = (open.first(), begun.elapsed() > FINISH_WITHIN) {
            let found = walk(&mut client, root)?.unwrap_or_default();
            let live = found.iter().filter(|seen| !seen.status.is_terminal()).take(10);
            let live: Vec<String> =
                live.map(|seen| format!("{} {}", seen.id, seen.status)).collect();
            return Err(format!("{root} cannot be finished: {}", live.join(", ")).into());
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// Brings a tree nearer to its end, as a user would. Returns true if it has ended.
fn bring_to_end(client: &mut Client, address: SocketAddr, root: &str) -> Result<bool, Fault> {
    let Some(found) = job(client, root)? else { return Ok(true) };
    let status = status_of(&found)?;
    let seen = match status {
        status if status.is_terminal() => return Ok(true),
        // Paused and waiting jobs below a job that runs.
        Status::Started => walk(client, root)?.unwrap_or_default(),
        _ => vec![Seen { id: root.to_owned(), status, parent: None }],
    };
    for Seen { id, status, .. } in seen {
        let path = format!("/api/v1/jobs/{id}");
        let request = match status {
            Status::Paused => put(address, &format!("{path}/resume"), "{}"),
            Status::InputRequired => post(address, &path, r#"{"content":"done"}"#),
            _ => continue,
        };
        let (status, body) = client.ask(&request)?;
        // Other jobs of the tree run, and it may have changed since it was read.
        if !matches!(status, 200 | 202 | 404 | 409 | 410) {
            return Err(format!("{id}: {status}, {}", String::from_utf8_lossy(&body)).into());
        }
    }
    Ok(false)
}

/// Checks that nothing is left of trees that were deleted. Returns how many were.
fn check_deleted(venue: &Venue, shared: &Shared) -> Result<usize, Fault> {
    let mut client = Client::connect(venue.address)?;
    let trees = shared.trees().clone();
    let mut deleted = 0;
    for tree in trees.iter().filter(|tree| tree.is_deleted) {
        // The request may have been cut off before it had any effect.
        if job(&mut client, &tree.root)?.is_some() {
            continue;
        }
        deleted += 1;
        for id in &tree.known {
            if job(&mut client, id)?.is_some() {
                return Err(format!("{id} is left of the deleted tree {}", tree.root).into());
            }
        }
    }
    Ok(deleted)
}

/// Checks that nothing runs or waits for a slot, and that a new job starts immediately.
fn check_slots(venue: &Venue) -> Result<(), Fault> {
    let mut left = Vec::new();
    for _ in 0..100 {
        let metrics = venue.metrics()?;
        let names = ["catena_jobs_running", "catena_jobs_queued"];
        let values = names.map(|name| (name, venue.metric(&metrics, name)));
        left = values.into_iter().filter(|(_, value)| *value != 0.0).collect();
        if left.is_empty() {
            break;
        }
        std::thread::sleep(POLL);
    }
    if !left.is_empty() {
        return Err(format!("all jobs have ended, but {left:?}").into());
    }
    let body = invocation("test:delay", r#"{"delay":0}"#).replacen('{', r#"{"wait":1000,"#, 1);
    let mut client = Client::connect(venue.address)?;
    let (status, body) = client.ask(&post(venue.address, "/api/v1/invoke", &body))?;
    match text(&read(&body)?, "status").as_str() {
        "COMPLETE" => Ok(()),
        other => Err(format!("a new job is {other} after a second: {status}").into()),
    }
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness every run makes the same choices, which is acceptable.
    let _ = getrandom::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}
