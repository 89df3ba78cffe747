//! `backlog`: many jobs of many callers wait for workers. Memory stays flat, other queues are undisturbed, and
//! callers take turns.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use catena_auth::KeyPair;
use catena_auth::identity::self_issued;

use crate::Fault;
use crate::json::{items, member, read, text};
use crate::measure::median;
use crate::web::{Client, Options, Venue, invocation, resident_kb};

/// Lets many jobs wait for workers, and checks memory, other queues and the turns of callers.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    /// The number of waiting jobs.
    #[arg(long, default_value_t = 100_000)]
    jobs: usize,
    /// A run of a few seconds that only shows that everything works.
    #[arg(long)]
    small: bool,
}

const CALLERS: usize = 20;

/// Jobs that are claimed to see whose turn it is.
const CLAIMED: usize = 10 * CALLERS;

/// Echoes on another queue that are measured, and in a small run.
const ECHOES: usize = 200;
const ECHOES_SMALL: usize = 20;

/// The most that the process may grow per waiting job, in bytes, in the second half of a large backlog.
const GROWTH_MAX: f64 = 512.0;

/// Jobs from which on growth is judged; fewer are less than what a process varies by.
const JUDGED: usize = 50_000;

pub(crate) fn run(args: &Args) -> Result<(), Fault> {
    let (jobs, echoes) = if args.small { (600, ECHOES_SMALL) } else { (args.jobs, ECHOES) };
    let (folder, _temporary) = args.options.folder()?;
    let venue = Venue::start(&args.options.binary()?, &folder.join("venue"), None)?;
    let owner = Caller::new(&venue, 1)?;
    let did = KeyPair::from_seed(&[1; 32]).did();
    for queue in ["backlog", "other"] {
        let body =
            format!(r#"{{"name":"{queue}","operation":{{"adapter":"worker","queue":"{queue}"}}}}"#);
        owner.expect("PUT", &format!("/api/v1/operations/{queue}?share=everyone"), &body, 200)?;
    }
    let before = echo_on_other(&owner, echoes)?;
    let callers =
        (0..CALLERS).map(|n| Caller::new(&venue, 2 + n as u8)).collect::<Result<Vec<_>, _>>()?;
    let operation = format!("{did}/o/backlog");
    let mut sizes = Vec::new();
    let begun = Instant::now();
    for part in 0..10 {
        submit(&callers, &operation, jobs / 10)?;
        sizes.push(resident_kb(venue.pid()));
        println!("{} jobs wait: {} MB resident", (part + 1) * (jobs / 10), sizes[part] / 1_024);
    }
    let rate = jobs as f64 / begun.elapsed().as_secs_f64();
    let after = echo_on_other(&owner, echoes)?;
    check_turns(&owner, &callers)?;
    check_newcomer(&venue, &owner, &operation)?;
    let growth = 1_024.0 * (sizes[9] as f64 - sizes[4] as f64) / (jobs as f64 / 2.0);
    println!(
        "backlog: {jobs} jobs of {CALLERS} callers, submitted at {rate:.0}/s; {growth:.0} bytes resident per job in \
         the second half; an echo on another queue: p50 {before:.1} ms before, {after:.1} ms with the backlog"
    );
    if jobs >= JUDGED && growth > GROWTH_MAX {
        return Err(format!("the venue grew by {growth:.0} bytes per waiting job").into());
    }
    Ok(())
}

/// A caller with a key of its own.
struct Caller {
    address: SocketAddr,
    did: String,
    token: String,
}

impl Caller {
    fn new(venue: &Venue, seed: u8) -> Result<Caller, Fault> {
        let (_, document) = Client::connect(venue.address)?.get("/.well-known/did.json")?;
        let key = KeyPair::from_seed(&[seed; 32]);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let venue_did = text(&read(&document)?, "id");
        let token = self_issued(&key, Some(&venue_did), None, i64::try_from(now.as_secs())?);
        Ok(Caller { address: venue.address, did: key.did(), token })
    }

    fn request(&self, method: &str, path: &str, body: &str) -> Vec<u8> {
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            self.token,
            body.len()
        )
        .into_bytes()
    }

    fn expect(&self, method: &str, path: &str, body: &str, status: u16) -> Result<Vec<u8>, Fault> {
        let mut client = Client::connect(self.address)?;
        self.expect_on(&mut client, (method, path, body), status)
    }

    fn expect_on(
        &self,
        client: &mut Client,
        (method, path, body): (&str, &str, &str),
        status: u16,
    ) -> Result<Vec<u8>, Fault> {
        match client.ask(&self.request(method, path, body))? {
            (found, reply) if found == status => Ok(reply),
            (found, reply) => Err(format!("{found}: {}", String::from_utf8_lossy(&reply)).into()),
        }
    }
}

/// Submits jobs, the same number for each caller, all callers at once.
fn submit(callers: &[Caller], operation: &str, jobs: usize) -> Result<(), Fault> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = callers
            .iter()
            .map(|caller| {
                scope.spawn(move || -> Result<(), Fault> {
                    let mut client = Client::connect(caller.address)?;
                    for _ in 0..jobs / CALLERS {
                        let body = invocation(operation, "1");
                        caller.expect_on(&mut client, ("POST", "/api/v1/invoke", &body), 201)?;
                    }
                    Ok(())
                })
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| "a caller panicked")??;
        }
        Ok(())
    })
}

fn claim(owner: &Caller, queue: &str, max: usize) -> Result<Vec<catena_value::Value>, Fault> {
    let body = format!(r#"{{"worker":"w1","queues":["{queue}"],"max":{max},"waitMs":5000}}"#);
    let reply = owner.expect("POST", "/worker/v1/claim", &body, 200)?;
    Ok(items(&read(&reply)?, "jobs"))
}

/// Submits, claims and ends jobs on another queue. Returns the median time in ms.
fn echo_on_other(owner: &Caller, echoes: usize) -> Result<f64, Fault> {
    let mut times = Vec::new();
    for _ in 0..echoes {
        let begun = Instant::now();
        owner.expect("POST", "/api/v1/invoke", &invocation("o/other", "1"), 201)?;
        let job = claim(owner, "other", 1)?.pop().ok_or("the job was not offered")?;
        let fence = member(&job, "fence").and_then(|fence| fence.as_i64()).unwrap_or(0);
        let body = format!(r#"{{"fence":{fence},"output":1}}"#);
        owner.expect("POST", &format!("/worker/v1/jobs/{}/end", text(&job, "id")), &body, 200)?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(times))
}

/// Checks that the callers take turns.
fn check_turns(owner: &Caller, callers: &[Caller]) -> Result<(), Fault> {
    let claimed = claim(owner, "backlog", CLAIMED)?;
    for caller in callers {
        let own = claimed.iter().filter(|job| text(job, "caller") == caller.did).count();
        if claimed.len() != CLAIMED || own != CLAIMED / CALLERS {
            let total = claimed.len();
            return Err(
                format!("{own} of {total} claimed jobs are of one of {CALLERS} callers").into()
            );
        }
    }
    Ok(())
}

/// Checks that a caller who comes last does not wait for the others.
fn check_newcomer(venue: &Venue, owner: &Caller, operation: &str) -> Result<(), Fault> {
    let newcomer = Caller::new(venue, 200)?;
    let begun = Instant::now();
    newcomer.expect("POST", "/api/v1/invoke", &invocation(operation, "1"), 201)?;
    let claimed = claim(owner, "backlog", 2 * CALLERS)?;
    if !claimed.iter().any(|job| text(job, "caller") == newcomer.did) {
        return Err("a job of a new caller was not among the next claimed ones".into());
    }
    if begun.elapsed() > Duration::from_secs(30) {
        return Err("a claim took too long".into());
    }
    Ok(())
}
