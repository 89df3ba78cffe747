//! `pause-tree`: how long it takes until a tree of a thousand steps is PAUSED as a whole, and until it
//! runs again as a whole.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use catena_engine::limits::CONCURRENT_STEPS_MAX;
use catena_value::Value;

use crate::Fault;
use crate::json::{items, read, text};
use crate::measure::median;
use crate::web::{Client, Options, Venue, invocation, post, put};

/// Pauses and resumes a workflow of 1,000 steps.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,
    /// The number of steps.
    #[arg(long, default_value_t = 1_000)]
    steps: usize,
    /// The number of pauses of each tree.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// A run of a few seconds that only shows that everything works.
    #[arg(long)]
    small: bool,
}

/// The longest time that a pause or a resume of the whole tree may take.
const TARGET: Duration = Duration::from_millis(300);

/// A tree must have changed within this time, however slow the machine is.
const GIVE_UP: Duration = Duration::from_secs(60);

/// A tree to pause.
struct Shape {
    name: &'static str,
    operation: &'static str,
    /// The status of a step that is not paused.
    open: &'static str,
    /// How many steps can be open at a time.
    open_max: usize,
}

/// Steps that run are limited for each root, so that the others of a thousand have not
/// started. Steps that wait for people are not.
const SHAPES: [Shape; 2] = [
    Shape {
        name: "steps that run",
        operation: "test:never",
        open: "STARTED",
        open_max: CONCURRENT_STEPS_MAX,
    },
    Shape {
        name: "steps that wait for input",
        operation: "test:chat",
        open: "INPUT_REQUIRED",
        open_max: usize::MAX,
    },
];

pub(crate) fn run(args: &Args) -> Result<(), Fault> {
    let (steps, rounds) = if args.small { (60, 2) } else { (args.steps, args.rounds) };
    let (folder, _temporary) = args.options.folder()?;
    let venue = Venue::start(&args.options.binary()?, &folder.join("venue"), None)?;
    let mut client = Client::connect(venue.address)?;
    let mut is_met = true;
    for shape in &SHAPES {
        let root = start(&mut client, venue.address, shape, steps)?;
        let expected = shape.open_max.min(steps);
        wait(&mut client, &root, |statuses| count(statuses, shape.open) == expected)?;
        let open = expected;
        let (mut pauses, mut resumes, mut settled) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            pauses.push(change(&mut client, venue.address, &root, "pause", |statuses| {
                count(statuses, "PAUSED") == open
            })?);
            check_steps(&mut client, &root)?;
            let begun = Instant::now();
            resumes.push(change(&mut client, venue.address, &root, "resume", |statuses| {
                count(statuses, "PAUSED") == 0
            })?);
            wait(&mut client, &root, |statuses| count(statuses, shape.open) == open)?;
            settled.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        let longest = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
        println!(
            "{steps} {}, {open} of them open: all PAUSED after {:.0} ms (at most {:.0}), none after {:.0} ms (at most {:.0}), all {} again after {:.0} ms",
            shape.name,
            median(pauses.clone()),
            longest(&pauses),
            median(resumes.clone()),
            longest(&resumes),
            shape.open,
            median(settled),
        );
        let target = TARGET.as_secs_f64() * 1e3;
        is_met &= median(pauses) <= target && median(resumes) <= target;
        let cancel = put(venue.address, &format!("/api/v1/jobs/{root}/cancel"), "{}");
        expect(client.ask(&cancel)?, 200)?;
    }
    if !is_met && !args.small && !cfg!(debug_assertions) {
        return Err(format!("it takes longer than {} ms", TARGET.as_millis()).into());
    }
    Ok(())
}

/// Registers and starts a workflow, and returns its job.
fn start(
    client: &mut Client,
    address: SocketAddr,
    shape: &Shape,
    steps: usize,
) -> Result<String, Fault> {
    let step = format!(r#"{{"op":"{}","input":{{}}}}"#, shape.operation);
    let steps = vec![step; steps].join(",");
    let definition = format!(
        r#"{{"operation":{{"adapter":"orchestrator","steps":[{steps}],"result":["const",1]}}}}"#
    );
    let body = expect(client.ask(&post(address, "/api/v1/assets", &definition))?, 201)?;
    let operation = String::from_utf8(body)?.trim().trim_matches('"').to_owned();
    let body = client.ask(&post(address, "/api/v1/invoke", &invocation(&operation, "{}")))?;
    Ok(text(&read(&expect(body, 201)?)?, "id"))
}

fn expect((status, body): (u16, Vec<u8>), expected: u16) -> Result<Vec<u8>, Fault> {
    match status {
        status if status == expected => Ok(body),
        status => Err(format!("{status}: {}", String::from_utf8_lossy(&body)).into()),
    }
}

fn count(statuses: &[String], status: &str) -> usize {
    statuses.iter().filter(|found| *found == status).count()
}

/// Reads a job until the statuses of its steps are as expected, and returns them with its own.
fn wait(
    client: &mut Client,
    root: &str,
    is_met: impl Fn(&[String]) -> bool,
) -> Result<(String, Vec<String>), Fault> {
    let begun = Instant::now();
    loop {
        let job = read(&expect(client.get(&format!("/api/v1/jobs/{root}"))?, 200)?)?;
        let statuses: Vec<String> =
            items(&job, "steps").iter().map(|step: &Value| text(step, "status")).collect();
        if is_met(&statuses) {
            return Ok((text(&job, "status"), statuses));
        }
        if begun.elapsed() > GIVE_UP {
            return Err(format!("{root} does not get there: {statuses:?}").into());
        }
    }
}

/// Pauses or resumes a tree, and returns how many milliseconds it takes until all of it has changed.
fn change(
    client: &mut Client,
    address: SocketAddr,
    root: &str,
    action: &str,
    is_met: impl Fn(&[String]) -> bool,
) -> Result<f64, Fault> {
    let request = put(address, &format!("/api/v1/jobs/{root}/{action}"), "{}");
    let begun = Instant::now();
    expect(client.ask(&request)?, 200)?;
    let (status, _) = wait(client, root, is_met)?;
    let took = begun.elapsed();
    if (status == "PAUSED") != (action == "pause") {
        return Err(format!("after {action}, {root} is {status}").into());
    }
    Ok(took.as_secs_f64() * 1e3)
}

/// Checks that each open step of a paused workflow is PAUSED itself.
fn check_steps(client: &mut Client, root: &str) -> Result<(), Fault> {
    let job = read(&expect(client.get(&format!("/api/v1/jobs/{root}"))?, 200)?)?;
    for step in items(&job, "steps") {
        let id = text(&step, "id");
        if id.is_empty() {
            continue;
        }
        let found = read(&expect(client.get(&format!("/api/v1/jobs/{id}"))?, 200)?)?;
        if text(&found, "status") != "PAUSED" {
            return Err(format!("{id} is {} below a paused job", text(&found, "status")).into());
        }
    }
    Ok(())
}
